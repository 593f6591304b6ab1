"""What the scripts on trained networks have in common: their arguments, and errors as one line."""

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etils import epath
    from rich.console import Console


WIDEST_TABLE = 200  # columns, where there is no terminal


def table_console() -> "Console":
    """The terminal; wide enough for tables if output is not a terminal."""
    from capsjax.training.display import console

    terminal = console()
    if not terminal.is_terminal:
        terminal.width = WIDEST_TABLE
    return terminal


def add_which(parser: argparse.ArgumentParser) -> None:
    """--which: the checkpoint among those of a run."""
    parser.add_argument(
        "--which",
        type=_which,
        default="best",
        metavar="best|latest|STEP",
        help="which checkpoint: the best by validation accuracy (default), the latest, or a step",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """What to evaluate on, and how."""
    parser.add_argument(
        "--dataset", metavar="NAME", help="default: the one that the network was trained on"
    )
    parser.add_argument("--split", default="test", help="default: test")
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="prepared TFDS directory; default: those in CAPSJAX_DATA_DIR, then TFDS's",
    )
    add_device_budget(parser)
    parser.add_argument(
        "--batch_size",
        type=int,
        metavar="N",
        help="images at a time, divided over the devices; default: 128 per device",
    )


def add_device_budget(parser: argparse.ArgumentParser) -> None:
    """--device_budget_mb: when images are not to be put on the device all at once."""
    parser.add_argument(
        "--device_budget_mb",
        type=float,
        default=2048.0,
        metavar="MB",
        help="images that take more when decoded are fed in batches; default: 2048",
    )


def _which(text: str) -> str | int:
    if text in ("best", "latest"):
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither best nor latest nor the number of a step"
        ) from None


def run(
    parser: argparse.ArgumentParser,
    main: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> None:
    """Parses the command line and calls `main`; what a user got wrong is a line on stderr.

    `main` is to import JAX itself: it takes seconds, `--help` should not.
    """
    args = parser.parse_args(argv)
    from absl import logging

    # Orbax reports each of its steps, and warns that what is opened read-only is read-only.
    logging.set_verbosity(logging.ERROR)
    try:
        main(args)
    except OSError as error:
        # The system's own errors would begin with "[Errno 2]".
        own = error.strerror is None or error.filename is None
        sys.exit(f"error: {error if own else f'{error.filename}: {error.strerror}'}")
    except ValueError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")


def write(text: str, output: "epath.Path | None", directory: str, name: str) -> "epath.Path":
    """Writes `text` into `output`, or else into the file `name` of `directory`; returns which.

    A link in the place of the latter, which nobody named, is replaced and not followed.
    """
    from capsjax import _files

    file = output or _files.absolute(directory) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if output is None:
        _files.write_atomically(file, text)
    else:
        file.write_bytes(text.encode())
    return file


def parse_flags(argv: list[str]) -> list[str]:
    """As absl does, but a key that the config lacks is a message, not a traceback."""
    from absl import app

    try:
        return app.parse_flags_with_usage(argv)
    except (KeyError, AttributeError) as error:
        if "ml_collections" not in traceback.extract_tb(error.__traceback__)[-1].filename:
            raise
        sys.exit(f"error: unknown config key: {error}")
