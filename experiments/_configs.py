"""The files of configs/, which hold every recipe once."""

import inspect
import runpy
from pathlib import Path

import ml_collections

from capsjax._names import nearest

FOLDER = Path(__file__).parents[1] / "configs"


def files() -> dict[str, Path]:
    """By name, without the ending."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.py"))}


def load(name: str) -> ml_collections.ConfigDict:
    """The config NAME or NAME:VARIANT, as `--config=configs/NAME.py:VARIANT` gives it.

    Raises:
      ValueError: there is no such file (the nearest is named), or the file has no such variant.
    """
    stem, colon, variant = name.partition(":")
    return read(f"{FOLDER / f'{stem}.py'}{colon}{variant}")


def read(text: str) -> ml_collections.ConfigDict:
    """The config of a file FILE or FILE:VARIANT, whose `get_config` makes it.

    Raises:
      ValueError: there is no such file (the nearest of configs/ is named), the file is not one of a
        config, or it has no such variant.
    """
    path, colon, variant = text.partition(":")
    if not Path(path).is_file():
        raise ValueError(f"no file {path}: {nearest(Path(path).stem, files())}")
    get_config = runpy.run_path(path).get("get_config")
    if get_config is None:
        raise ValueError(f"{path} defines no get_config(): a file of configs/ was expected")
    if colon and not inspect.signature(get_config).parameters:
        raise ValueError(f"{path} has no variants, got {text!r}")
    return get_config(variant) if colon else get_config()
