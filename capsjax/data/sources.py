"""Datasets by name."""

import os
from typing import Protocol

from capsjax.data import prepared
from capsjax.data.cache import cached
from capsjax.data.dataset import Dataset, Examples
from capsjax.data.digits import Digits


class Source(Protocol):
    """Where the splits of one dataset are read from."""

    where: str
    splits: tuple[str, ...]

    def fingerprint(self, split: str) -> str: ...

    def read(self, split: str) -> Examples: ...


def load(name: str, split: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    source = _open(name, data_dir)
    if split not in source.splits:
        raise ValueError(
            f"split: {name!r} has no split {split!r}; it has {', '.join(source.splits)}"
        )
    key = f"{source.where} {split}"
    examples = cached(key, source.fingerprint(split), lambda: source.read(split))
    return Dataset(*examples, name=name, split=split)


def _open(name: str, data_dir: str | os.PathLike[str] | None) -> Source:
    if name == "digits":
        return Digits()
    directories = prepared.search_path(data_dir)
    found = prepared.find(name, directories)
    if found is None:
        raise FileNotFoundError(f"{name} not found in {directories}")
    return found
