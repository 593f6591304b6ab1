"""The files of configs/, which hold every recipe once."""

import contextlib
import inspect
import runpy
import traceback
from collections.abc import Iterator
from pathlib import Path

import ml_collections

from capsjax._names import did_you_mean

HERE = Path(__file__).parent
FOLDER = next(parent / "configs" for parent in (HERE, HERE.parent) if (parent / "configs").is_dir())


def files() -> dict[str, Path]:
    """Returns the files of configs/ by name, without the ending."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.py"))}


def read(text: str) -> ml_collections.ConfigDict:
    """Reads the config of a file FILE or FILE:VARIANT, whose `get_config` makes it.

    NAME and configs/NAME.py are also the files of configs/ where this is not the working directory.
    """
    path, colon, variant = text.partition(":")
    stem = Path(path).stem
    if not Path(path).is_file() and path in (stem, f"configs/{stem}.py"):
        path = str(files().get(stem, path))
    if not Path(path).is_file():
        what = "not a file" if Path(path).exists() else "there is no such file"
        raise ValueError(f"{path}: {what}: {did_you_mean(stem, files())}")
    with errors_by_line(path):
        get_config = runpy.run_path(path).get("get_config")
        if get_config is None:
            raise ValueError("there is no function get_config() in it, as in those of configs/")
        if colon and not inspect.signature(get_config).parameters:
            raise ValueError(f"it has one recipe: leave out ':{variant}'")
        return get_config(variant) if colon else get_config()


@contextlib.contextmanager
def errors_by_line(path: str) -> Iterator[None]:
    """Runs a block of a user's file: its errors become a ValueError with the file's line."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == path]
        if isinstance(error, SyntaxError):
            lines.append(error.lineno)
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        place = ":".join(map(str, [path, *lines[-1:]]))
        raise ValueError(f"{place}: {kind}{' '.join(str(error).split())}") from error
