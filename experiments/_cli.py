"""What the scripts share: their arguments, errors as one line, and files that are written whole.

A script imports JAX in its `main`: that takes seconds, and `--help` should not.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import platform
import re
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ml_collections
    from etils import epath
    from rich.console import Console
    from rich.table import Table

WIDEST_TABLE = 200  # columns, where there is no terminal
PROGRAM = ""  # what runs scripts by name and was typed, such as "capsjax" (capsjax/__main__.py)


class UsageError(ValueError):
    """The command line is wrong: the script ends with status 2, as argparse does."""


@contextlib.contextmanager
def of_arguments() -> Iterator[None]:
    """Runs a block that reads arguments: a ValueError in it means a wrong command line."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def command(script: str) -> str:
    """Returns the command for `script`, in the form in which the user started this one."""
    return f"{PROGRAM} {script}" if PROGRAM else f"python experiments/{script}.py"


def parser(text: str) -> argparse.ArgumentParser:
    """Returns a parser for the command line of a script whose docstring is `text`."""
    return argparse.ArgumentParser(
        prog=command(Path(sys.argv[0]).stem) if PROGRAM else None,
        description=re.sub(r"python experiments/(\w+)\.py", lambda match: command(match[1]), text),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,  # it comes with what all scripts have
    )


def table_console() -> "Console":
    """Returns the terminal; wide enough for tables if output is not a terminal."""
    from capsjax.runs.display import console

    terminal = console()
    if not terminal.is_terminal:
        terminal.width = WIDEST_TABLE
    return terminal


def whole_names(table: "Table") -> "Table":
    """Keeps the table's first column whole, so that names can be copied."""
    from rich.cells import cell_len

    first = table.columns[0]
    first.no_wrap = True
    first.min_width = max(cell_len(str(cell)) for cell in first.cells)
    return table


def positive(text: str) -> int:
    """Returns the type of an argument that is a number of things."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text}")
    return int(text)


def path(text: str) -> "epath.Path | str":
    """Returns the type of an argument that is a local path, relative or not, or an address."""
    from etils import epath

    from capsjax import _files

    if text.startswith(("http://", "https://")):
        return text  # a released network; etils has no paths on the web
    try:
        return _files.absolute(text) if "://" in text else epath.Path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _which(text: str) -> str | int:
    if text in ("best", "latest"):
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither best nor latest nor the number of a step"
        ) from None


# Arguments that several scripts take.
SHARED: dict[str, dict[str, Any]] = {
    "--checkpoint": {
        "required": True,
        "metavar": "DIR",
        "help": "--workdir of a training run, or the .safetensors file of a released network",
    },
    "--which": {
        "type": _which,
        "default": "best",
        "metavar": "best|latest|STEP",
        "help": "which checkpoint: the best by validation accuracy (default), the latest, or a "
        "step",
    },
    "--dataset": {"metavar": "NAME", "help": "default: the one that the network was trained on"},
    "--split": {"help": "default: test, or validation where there is no test set"},
    "--data_dir": {
        "metavar": "DIR",
        "help": "prepared TFDS directory; default: those in CAPSJAX_DATA_DIR, then TFDS's",
    },
    "--device_budget_mb": {
        "type": float,
        "default": 2048.0,
        "metavar": "MB",
        "help": "images that take more when decoded are fed in batches; default: 2048",
    },
    "--batch_size": {
        "type": positive,
        "metavar": "N",
        "help": "images at a time, divided over the devices; default: 128 per device",
    },
}
DATA = ("--dataset", "--split", "--data_dir", "--device_budget_mb", "--batch_size")  # to evaluate


def add(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Adds arguments of `SHARED`, with `changes` to what is said there."""
    for name in names:
        parser.add_argument(name, **SHARED[name] | changes)


def add_config(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds --config and its changed values; `config_of` returns the config."""
    parser.add_argument(
        "--config",
        required=required,
        metavar="FILE[:VARIANT]",
        help="a file of configs/; --config.SECTION.KEY=VALUE changes one of its values, and "
        "--config.SECTION.name=NAME all options of a section to those of that name; "
        "--config=FILE --help lists them",
    )
    parser.set_defaults(trains=required)


def config_of(args: argparse.Namespace) -> "ml_collections.ConfigDict":
    """Returns the config that --config and --config.KEY=VALUE describe."""
    import _configs

    from capsjax.training.overrides import override

    with of_arguments():
        return override(_configs.read(args.config), args.overrides)


def run(
    parser: argparse.ArgumentParser,
    main: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> None:
    """Parses the command line and calls `main`; what a user got wrong is a line on stderr."""
    from absl import logging

    logging.set_verbosity(logging.ERROR)  # Orbax reports each of its steps otherwise
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every encoding has every class name
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parse(parser, list(sys.argv[1:] if argv is None else argv))
        with contextlib.ExitStack() as stack:
            stack.enter_context(_plain_warnings())
            if args.quiet:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            for file in args.imports:
                import_file(file)
            main(args)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if "pip install" in str(error):
            sys.exit(f"error: {error}")
        if (error.name or "").startswith(("_", "capsjax")):
            raise
        from capsjax._extras import install

        sys.exit(f"error: {error.name} is not installed: {install('experiments')}")
    except OSError as error:
        # The system's own errors would begin with "[Errno 2]".
        own = error.strerror is None or error.filename is None
        sys.exit(f"error: {error if own else f'{error.filename}: {error.strerror}'}")
    except ValueError as error:
        sys.exit(f"error: {error}")
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        if not platforms or "xla_bridge" not in traceback.extract_tb(error.__traceback__)[-1][0]:
            raise
        sys.exit(f"error: JAX_PLATFORMS={platforms}: JAX finds no such device here; unset it")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def write(text: str, output: "epath.Path | None", run: str, name: str) -> "epath.Path":
    """Writes `text` into `output`, or else into the file `name` of `run`; returns which.

    For a released network, where `run` is its file, the name of that is put in front; the folder is
    that of the file, or the working directory where it is from the web.
    """
    from capsjax import _files
    from capsjax.runs import release

    if output is not None:
        file = _files.absolute(output)
    elif release.is_one(run):
        folder = "." if release.is_on_the_web(os.fspath(run)) else os.path.dirname(run)
        file = _files.absolute(folder) / f"{Path(run).stem}.{name}"
    else:
        file = _files.absolute(run) / name
    save(file, text, follow=output is not None)
    return file


def save(file: "epath.Path | Path", contents: str | bytes, *, follow: bool = True) -> None:
    """Writes a file whole or not at all; what UTF-8 lacks of a text is written as an escape."""
    from capsjax import _files

    data = contents.encode(errors="backslashreplace") if isinstance(contents, str) else contents
    target = _files.absolute(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    _files.write_atomically(target, data, follow=follow)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings are a line, without the place in our code."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *rest: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def import_file(path: Path) -> None:
    """Runs a user's file, which may call `capsjax.models.register`."""
    import _configs

    if not path.is_file():
        raise UsageError(f"--import: no file {path}")
    sys.path.append(str(path.absolute().parent))  # for what it imports itself
    name = f"imported_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--import: {path} is not a file of Python (.py)")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    with of_arguments(), _configs.errors_by_line(str(path)):
        spec.loader.exec_module(module)


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parses the arguments, with the values of --config.KEY=VALUE in `overrides`."""
    _add_common(parser)
    # argparse reads --config.KEY=VALUE too; which keys there are, the config says later.
    keys = {word.partition("=")[0] for word in words if word.startswith("--config.")}
    for key in keys:
        parser.add_argument(key, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if keys and not getattr(args, "config", None):
        parser.error(f"{min(keys)}: there is no --config=FILE to change")
    args.overrides = {
        key.removeprefix("--config."): getattr(args, key.removeprefix("--")) for key in keys
    }
    return args


class _Help(argparse.Action):
    """--help: lists the options of the config too, where one was given or must be."""

    def __call__(
        self, parser: argparse.ArgumentParser, args: argparse.Namespace, *rest: object
    ) -> None:
        parser.print_help()
        if getattr(args, "trains", False) or getattr(args, "config", None):
            _print_options(args.config)
        parser.exit()


def _print_options(file: str | None) -> None:
    import _configs

    from capsjax.training import config as configs

    with of_arguments():
        config = _configs.read(file) if file else configs.default("sabour2017_capsnet", "mnist")
    print(f"\noptions of {file or 'a config'}, which --config.OPTION=VALUE changes:")
    for name, option in configs.describe(configs.complete(config)).items():
        print(f"  {name}={option.default}{f' ({option.allowed})' if option.allowed else ''}")
        print(textwrap.indent(textwrap.fill(option.text, 86), " " * 10))


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-h", "--help", nargs=0, action=_Help, help="show this")
    parser.add_argument(
        "--import",
        dest="imports",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="run a file of yours first, which registers networks; may be repeated",
    )
    parser.add_argument("--quiet", action="store_true", help="print errors and nothing else")
    versions = ", ".join(f"{name} {version(name)}" for name in ("capsjax", "jax", "flax"))
    parser.add_argument(
        "--version", action="version", version=f"{versions}, Python {platform.python_version()}"
    )
