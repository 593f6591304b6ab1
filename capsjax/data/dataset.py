"""The result of loading a dataset, and what all sources of datasets have in common."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int32

from capsjax._extras import extra
from capsjax._files import digest
from capsjax.data.lazy_images import Images

T = TypeVar("T")


class Examples(NamedTuple):
    """One split, decoded."""

    images: Images
    labels: Int32[np.ndarray, "n"]
    class_names: tuple[str, ...]


class Dataset(NamedTuple):
    """One split of an image classification set, with the name that it was loaded by.

    Images are uint8 [N, H, W, C], `LazyImages` if they exceed the budget; labels int32 [N].
    """

    images: Images
    labels: Int32[np.ndarray, "n"]
    class_names: tuple[str, ...]
    name: str
    split: str
    splits: tuple[str, ...] = ("train", "test")  #: all of the set

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


class Source(ABC):
    where: str
    splits: tuple[str, ...] = ("train", "test")

    def fingerprint(self, split: str) -> str | None:
        """Returns a string that changes when the files do; None if a cache would not be faster."""
        return None

    @abstractmethod
    def read(self, split: str) -> Examples:
        """Decodes a split; raises ValueError if it is not an image classification set."""


def checked(
    images: Images, labels: np.ndarray, class_names: tuple[str, ...], where: str
) -> Examples:
    """Returns the arrays as `Examples`; raises ValueError, which names `where`, if they cannot be.

    Images may be [N, H, W], without channels.
    """
    if images.dtype != np.uint8:
        raise ValueError(
            f"{where}: images are {images.dtype}, expected uint8 (0 to 255); convert them first: "
            "images.astype(np.uint8), or np.round(255 * images).astype(np.uint8) if they end at 1"
        )
    if isinstance(images, np.ndarray) and images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.size == 0:
        raise ValueError(f"{where}: images have shape {images.shape}, expected [N, H, W, C], N > 0")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{where}: labels are {labels.dtype} of shape {labels.shape}, expected an integer for "
            f"each of {len(images)} images (if each row has a single 1, take the argmax)"
        )
    if len(set(class_names)) < len(class_names) or not all(name.strip() for name in class_names):
        raise ValueError(f"{where}: class names must differ and not be empty, got {class_names}")
    wrong = np.flatnonzero((labels < 0) | (labels >= len(class_names)))
    if wrong.size:
        raise ValueError(
            f"{where}: label {labels[wrong[0]]} of example {wrong[0]} (and {wrong.size - 1} more) "
            f"is out of range, expected 0 to {len(class_names) - 1}"
        )
    return Examples(images, labels.astype(np.int32), class_names)


def fingerprint(files: Iterable[Path], *options: Any) -> str:
    """Returns a string that changes with the files' names, sizes and times, and with `options`."""
    stats = ((file.as_posix(), file.stat()) for file in files)
    return digest(repr(options), *(repr((name, s.st_size, s.st_ctime_ns)) for name, s in stats))


def track(items: Iterable[T], description: str, total: int) -> Iterator[T]:
    """Yields `items`, showing how many are done if stderr is a terminal."""
    if sys.stderr.isatty():
        with extra("train"):
            from rich.console import Console
            from rich.progress import track

        items = track(items, description, total, console=Console(stderr=True), transient=True)
    yield from items
