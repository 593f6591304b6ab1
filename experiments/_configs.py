"""The files of configs/, which hold every recipe once."""

import contextlib
import inspect
import runpy
import traceback
from collections.abc import Iterator
from pathlib import Path

import ml_collections

from capsjax._names import nearest

HERE = Path(__file__).parent
FOLDER = next(parent / "configs" for parent in (HERE, HERE.parent) if (parent / "configs").is_dir())


def files() -> dict[str, Path]:
    """Returns the files of configs/ by name, without the ending."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.py"))}


def load(name: str) -> ml_collections.ConfigDict:
    """Loads the config NAME or NAME:VARIANT, as `--config=configs/NAME.py:VARIANT` gives it.

    Raises:
      ValueError: there is no such file (the nearest is named), or the file has no such variant.
    """
    stem, colon, variant = name.partition(":")
    return read(f"{FOLDER / f'{stem}.py'}{colon}{variant}")


def read(text: str) -> ml_collections.ConfigDict:
    """Reads the config of a file FILE or FILE:VARIANT, whose `get_config` makes it.

    NAME and configs/NAME.py are also the files of configs/ where this is not the working directory.

    Raises:
      ValueError: there is no such file (the nearest of configs/ is named), the file is not one of a
        config, it has no such variant, or it fails: the line is named.
    """
    path, colon, variant = text.partition(":")
    stem = Path(path).stem
    if not Path(path).exists() and path in (stem, f"configs/{stem}.py") and stem in files():
        path = str(files()[stem])
    if not Path(path).is_file():
        what = "not a file" if Path(path).exists() else "there is no such file"
        raise ValueError(f"{path}: {what}: {nearest(stem, files())}")
    with errors_by_line(path):
        get_config = runpy.run_path(path).get("get_config")
        if get_config is None:
            raise ValueError("there is no function get_config() in it, as in those of configs/")
        if colon and not inspect.signature(get_config).parameters:
            raise ValueError(f"it has no variants, got {variant!r}")
        config = get_config(variant) if colon else get_config()
    if not isinstance(config, ml_collections.ConfigDict):
        raise ValueError(
            f"{path}: get_config() must return an ml_collections.ConfigDict, such as "
            f"capsjax.training.config.default(...), got {type(config).__name__}"
        )
    return config


@contextlib.contextmanager
def errors_by_line(path: str) -> Iterator[None]:
    """Runs a block of a user's file: its errors become a ValueError with the file's line."""
    try:
        yield
    except Exception as error:
        line = _line_of(error, path)
        place = path if line is None else f"{path}:{line}"
        raise ValueError(f"{place}: {_in_one_line(error)}") from error


def _line_of(error: BaseException, path: str) -> int | None:
    """Returns the line of the config file that an error comes from, or None."""
    if isinstance(error, SyntaxError) and error.filename in (path, None):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)


def _in_one_line(error: BaseException) -> str:
    """Returns the first of the errors that led to `error`."""
    while earlier := error.__cause__ or error.__context__:
        error = earlier
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, ValueError) and text else f"{type(error).__name__}: "
    return kind + " ".join(text.split())
