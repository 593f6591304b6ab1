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
    known = files()
    if stem not in known:
        raise ValueError(f"no file configs/{stem}.py: {nearest(stem, known)}")
    get_config = runpy.run_path(str(known[stem]))["get_config"]
    if colon and not inspect.signature(get_config).parameters:
        raise ValueError(f"configs/{stem}.py has no variants, got {name!r}")
    return get_config(variant) if colon else get_config()
