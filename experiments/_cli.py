"""What the scripts on trained networks have in common: their arguments, and errors as one line."""

import argparse
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etils import epath
    from rich.console import Console


CONFIG_SECONDS = 60  # a config file takes a moment
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


def path(text: str) -> "epath.Path":
    """The type of an argument that is a local path, relative or not, or an address."""
    from etils import epath

    from capsjax import _files

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
    """As absl does, but what is wrong with a config is one line and no traceback."""
    import ml_collections
    from absl import flags

    path, variant = _config_of(argv)
    if path and not os.path.isfile(path):
        what = "not a file" if os.path.exists(path) else "there is no such file"
        sys.exit(f"error: {path}: {what}; expected one like those of configs/")
    try:
        with _time_limit(path):
            rest = flags.FLAGS(argv)
    except Exception as error:
        line = _line_of(error, path)
        if line is not None:
            sys.exit(f"error: {path}:{line}: {_in_one_line(error)}")
        if isinstance(error, TimeoutError):
            sys.exit(f"error: {error}")
        if path and "Flag --config must have a value" in str(error):
            sys.exit(
                f"error: {path}: get_config() must return an ml_collections.ConfigDict, got None"
            )
        if path and "get_config" in str(error):
            what = (
                f"has no variants, got {variant!r}" if variant else "has no function get_config()"
            )
            sys.exit(f"error: {path} {what}")
        if isinstance(error, KeyError | AttributeError) and "ml_collections" in _last_file(error):
            sys.exit(f"error: unknown config key: {error}")
        if isinstance(error, flags.Error):
            sys.exit(f"error: {error}. --help lists the options")
        raise
    if not path:
        return rest
    if not isinstance(config := flags.FLAGS["config"].value, ml_collections.ConfigDict):
        sys.exit(
            f"error: {path}: get_config() must return an ml_collections.ConfigDict, such as "
            f"capsjax.training.config.default(...), got {type(config).__name__}"
        )
    return rest


def _config_of(argv: Sequence[str]) -> tuple[str, str]:
    """The file and the variant that --config names."""
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in ("--config", "-config"):
            path, _, variant = (value if equals else after).partition(":")
            return path, variant
    return "", ""


def _line_of(error: BaseException, path: str) -> int | None:
    """The line of the config file that an error comes from; None if it comes from elsewhere."""
    line = None
    if isinstance(error, SyntaxError) and error.filename in (path, None):
        line = error.lineno or 1
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == path else line
    # absl and ml_collections raise their own errors from it.
    earlier = error.__cause__ or error.__context__
    return line if earlier is None or line is not None else _line_of(earlier, path)


def _in_one_line(error: BaseException) -> str:
    """The first of the errors that led to `error`."""
    while earlier := error.__cause__ or error.__context__:
        error = earlier
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, ValueError) and text else f"{type(error).__name__}: "
    return kind + " ".join(text.split())


def _last_file(error: BaseException) -> str:
    return traceback.extract_tb(error.__traceback__)[-1].filename


@contextlib.contextmanager
def _time_limit(path: str) -> Iterator[None]:
    """Raises TimeoutError if a config file does not come to its end."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"{path}: did not give a config within {CONFIG_SECONDS} s")

    if not hasattr(signal, "SIGALRM"):  # not on every system
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(CONFIG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
