"""What the scripts share: their arguments, errors as one line, and files that are written whole.

`--help` is quick: `import capsjax` takes no time, as each of its rooms is imported when it is first
used, and a script imports nothing that needs JAX before its arguments are read.
"""

import argparse
import contextlib
import io
import os
import platform
import re
import runpy
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import _configs
import ml_collections
from absl import logging
from etils import epath
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

import capsjax
from capsjax import _extras, _files

WIDEST_TABLE = 200  # columns, where there is no terminal
PROGRAM = ""  # what runs scripts by name and was typed, such as "capsjax" (capsjax/__main__.py)

# Arguments that several scripts take.
SHARED: dict[str, dict[str, Any]] = {
    "--checkpoint": {"required": True, "metavar": "DIR", "help": "a run, or a released file"},
    "--which": {
        "type": lambda text: int(text) if text.isdecimal() else text,
        "default": "best",
        "metavar": "best|latest|STEP|mean",
        "help": "the best checkpoint by validation accuracy, the latest, a step, or the mean of "
        "the latest, as many as checkpoints.keep",
    },
    "--dataset": {"metavar": "NAME", "help": "default: the one that the network was trained on"},
    "--split": {"help": "default: test, or validation where there is no test set"},
    "--data_dir": {"metavar": "DIR", "help": "prepared TFDS data sets; default: CAPSJAX_DATA_DIR"},
    "--device_budget_mb": {"type": float, "default": 2048.0, "help": "larger sets are streamed"},
    "--batch_size": {"type": int, "help": "images at a time; default: 128 per device"},
}
DATA = ("--dataset", "--split", "--data_dir", "--device_budget_mb", "--batch_size")  # to evaluate


def command(script: str) -> str:
    """Returns the command for `script`, in the form in which the user started this one."""
    return f"{PROGRAM} {script}" if PROGRAM else f"python experiments/{script}.py"


def kept(args: argparse.Namespace) -> list[str]:
    """Returns the options that a command has to have in common with this one."""
    data_dir = [f"--data_dir={args.data_dir}"] if args.data_dir else []
    return [*(f"--import={file}" for file in args.imports), *data_dir]


def local_folder(text: str) -> Path:
    """Reads an argument that cannot be gs://bucket/folder."""
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text} is an address; name a folder of this machine")
    return Path(text)


def file(*endings: str) -> Callable[[str], epath.Path]:
    """Returns the type of an argument that names a file to write."""

    def parse(text: str) -> epath.Path:
        if not text.endswith(endings):
            raise argparse.ArgumentTypeError(f"must end in {', '.join(endings)}; got {text}")
        return _files.absolute(text)

    return parse


def parser(text: str) -> argparse.ArgumentParser:
    """Returns a parser for the command line of a script whose docstring is `text`."""
    parser = argparse.ArgumentParser(
        prog=command(Path(sys.argv[0]).stem) if PROGRAM else None,
        description=re.sub(r"python experiments/(\w+)\.py", lambda match: command(match[1]), text),
        formatter_class=_Formatter,
        add_help=False,  # ours lists the options of a config too
    )
    parser.add_argument("-h", "--help", nargs=0, action=_Help, help="show this")
    text = "run this file first, for example to register networks; may be repeated"
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="FILE.py", help=text
    )
    parser.add_argument("--quiet", action="store_true", help="print only errors and warnings")
    versions = [f"{name} {version(name)}" for name in ("capsjax", "jax", "flax")]
    text = ", ".join([*versions, f"Python {platform.python_version()}"])
    parser.add_argument("--version", action="version", version=text)
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Adds the default to an argument's help."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        none = default in (None, False, "", argparse.SUPPRESS) or isinstance(default, list)
        return action.help if none else f"{action.help}; default: {default}"


def add(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Adds arguments of `SHARED`, with `changes` to what is said there."""
    for name in names:
        parser.add_argument(name, **SHARED[name] | changes)


def add_config(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds --config and its changed values; `config_of` returns the config."""
    text = "a recipe; --config.SECTION.KEY=VALUE changes a value; --config=FILE --help lists them"
    parser.add_argument("--config", required=required, metavar="FILE[:VARIANT]", help=text)


def config_of(args: argparse.Namespace) -> ml_collections.ConfigDict:
    """Returns the config that --config and --config.KEY=VALUE describe."""
    return capsjax.training.config.override(_configs.read(args.config), args.overrides)


class _Help(argparse.Action):
    """--help: after --config=FILE it lists the options of that config too."""

    def __call__(
        self, parser: argparse.ArgumentParser, args: argparse.Namespace, *rest: object
    ) -> None:
        parser.print_help()
        if file := getattr(args, "config", None):
            configs = capsjax.training.config
            dotted = {k.removeprefix("config."): v for k, v in vars(args).items() if "." in k and v}
            config = configs.override(_configs.read(file), dotted)  # another network has others
            print(f"\noptions of {file}; change one with --config.OPTION=VALUE:")
            for name, option in configs.describe(config).items():
                allowed = f" ({option.allowed})" if option.allowed else ""
                print(f"  {name}={option.default}{allowed}")
                print(textwrap.indent(textwrap.fill(option.text, 86), " " * 10))
        parser.exit()


def run(
    parser: argparse.ArgumentParser,
    main: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> None:
    """Parses the command line and calls `main`; what a user got wrong is a line on stderr."""
    logging.set_verbosity(logging.ERROR)  # Orbax reports each of its steps otherwise
    warnings.formatwarning = lambda message, *rest: f"warning: {message}\n"
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every encoding has every class name
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parse(parser, list(sys.argv[1:] if argv is None else argv))
        with contextlib.redirect_stdout(io.StringIO() if args.quiet else sys.stdout):
            for file in args.imports:
                sys.path.append(os.path.dirname(os.path.abspath(file)))  # for what it imports
                with _configs.errors_by_line(file):
                    runpy.run_path(file)
            main(args)
    except ModuleNotFoundError as error:
        how = "" if "pip install" in str(error) else f": {_extras.install('experiments')}"
        sys.exit(f"error: {error}{how}")
    except BrokenPipeError:  # of `… | head`
        os._exit(1)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parses the arguments, with the values of --config.KEY=VALUE in `overrides`."""
    # argparse reads --config.KEY=VALUE too; which keys there are, the config says later.
    keys = {word.partition("=")[0] for word in words if word.startswith("--config.")}
    for key in keys:
        parser.add_argument(key, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if keys and not getattr(args, "config", None):
        parser.error(f"{min(keys)}: there is no --config=FILE to change")
    args.overrides = {
        key.removeprefix("--config."): getattr(args, key[2:].replace("-", "_")) for key in keys
    }
    return args


def write(text: str, output: epath.Path | None, run: str, name: str) -> epath.Path:
    """Writes `text` into `output`, or else into the file `name` of `run`; returns which.

    Beside a released network it has that one's name in front; of one on the web it comes here.
    """
    release = capsjax.runs.release
    if release.is_one(run):
        beside = Path(run).name if release.is_on_the_web(run) else run
        place = f"{beside.removesuffix(release.SUFFIX)}.{name}"
    else:
        place = os.path.join(run, name)
    file = output or _files.absolute(place)
    _files.write_atomically(file, text)
    return file


def table_console() -> Console:
    """Returns the terminal; wide enough for tables if output is not a terminal."""
    terminal = capsjax.runs.display.console()
    if not terminal.is_terminal:
        terminal.width = WIDEST_TABLE
    return terminal


def whole_names(table: Table) -> Table:
    """Keeps the table's first column whole, so that names can be copied."""
    first = table.columns[0]
    first.no_wrap = True
    first.min_width = max(cell_len(str(cell)) for cell in first.cells)
    return table


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], left: Container[int] = (0,)
) -> str:
    """Returns a table; numbers stand to the right, the columns `left` to the left."""
    rules = ["---" if column in left else "---:" for column in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
