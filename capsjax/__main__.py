"""The command `capsjax`, and `python -m capsjax`: the scripts of experiments/ by name."""

import ast
import importlib
import os
import runpy
import sys
from pathlib import Path

from capsjax._names import did_you_mean

USAGE = """usage: {program} COMMAND [OPTION ...]

{commands}

{program} COMMAND --help says more."""


def scripts() -> dict[str, Path]:
    """Returns the scripts by name: installed beside this package, or of the clone that it is in."""
    beside = Path(__file__).parents[1]
    folders = [beside / "capsjax_experiments", beside / "experiments"]
    folder = next(folder for folder in folders if folder.is_dir())
    return {file.stem: file for file in sorted(folder.glob("[!_]*.py"))}


def main() -> None:
    """Runs a script as `python experiments/NAME.py` does."""
    program = os.path.basename(sys.argv[0])
    program = "python -m capsjax" if program == "__main__.py" else program
    known, (name, *rest) = scripts(), sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        about = {n: ast.get_docstring(ast.parse(f.read_text("utf-8"))) for n, f in known.items()}
        lines = [f"  {n:<16}{(text or '').splitlines()[0]}" for n, text in about.items()]
        print(USAGE.format(program=program, commands="\n".join(lines)))
    elif name in known:
        sys.argv[1:] = rest
        sys.path.insert(0, str(known[name].parent))  # as Python does for a script
        vars(importlib.import_module("_cli"))["PROGRAM"] = program  # for its help
        runpy.run_path(str(known[name]), run_name="__main__")
    else:
        print(f"error: there is no command {name!r}: {did_you_mean(name, known)}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
