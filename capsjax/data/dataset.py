"""The result of loading a dataset, and the checks that every source passes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from capsjax.data.lazy_images import Images, LazyImages


class Examples(NamedTuple):
    """One split's decoded arrays, as a source reads them and the cache keeps them."""

    images: Images
    labels: Int32[np.ndarray, "n"]
    class_names: tuple[str, ...]


class Dataset(NamedTuple):
    """One split of an image classification set.

    Attributes:
      images: uint8 [N, H, W, C]; an array, or `LazyImages` if they exceed the budget.
      labels: int32 [N], each in [0, num_classes).
      class_names: one name per class.
      name: the name that it was loaded by, such as "mnist" or "folder:PATH".
      split: the split that was loaded.
      splits: all splits of the set.
    """

    images: Images
    labels: Int32[np.ndarray, "n"]
    class_names: tuple[str, ...]
    name: str
    split: str
    splits: tuple[str, ...] = ("train", "test")

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


def checked(
    images: np.ndarray | LazyImages, labels: np.ndarray, class_names: tuple[str, ...], where: str
) -> Examples:
    """Returns the arrays as `Examples`; raises ValueError, which names `where`, if they cannot be.

    Images may be [N, H, W], without channels.
    """
    if images.dtype != np.uint8:
        raise ValueError(
            f"{where}: images are {images.dtype}, expected uint8 (0 to 255); "
            "scale and convert them first, e.g. np.round(255 * images).astype(np.uint8)"
        )
    if isinstance(images, np.ndarray) and images.ndim == 3:
        images = images[..., None]
    shape = f"{where}: images have shape {images.shape}"
    if images.ndim != 4:
        raise ValueError(f"{shape}, expected [N, H, W] or [N, H, W, C]")
    if images.size == 0:
        raise ValueError(f"{shape}: the set is empty")
    if labels.shape != (len(images),):
        expected = f"({len(images)},): one for each image"
        raise ValueError(f"{where}: labels have shape {labels.shape}, expected {expected}")
    if labels.dtype.kind not in "iu":
        numbers = f"integers from 0 to {len(class_names) - 1}" if class_names else "integers"
        raise ValueError(
            f"{where}: labels are {labels.dtype}, expected {numbers}; convert them with "
            "labels.astype(np.int32), for one-hot labels take the argmax"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= len(class_names)))
    if wrong.size:
        raise ValueError(
            f"{where}: label {labels[wrong[0]]} of example {wrong[0]} (and {wrong.size - 1} more) "
            f"is out of range, expected 0 to {len(class_names) - 1} for {len(class_names)} classes"
        )
    _check_names(class_names, where)
    return Examples(images, labels.astype(np.int32), class_names)


def _check_names(class_names: tuple[str, ...], where: str) -> None:
    if not class_names:
        raise ValueError(f"{where}: there are no class names, expected one for each class")
    first: dict[str, int] = {}
    for number, name in enumerate(class_names):
        if not name.strip():
            raise ValueError(f"{where}: class {number} has no name ({name!r}): give it one")
        if first.setdefault(name, number) != number:
            raise ValueError(
                f"{where}: classes {first[name]} and {number} are both called {name!r}: give each "
                "a name of its own"
            )
