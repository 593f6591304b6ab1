"""Images that do not fit on a device: they stay on the host or in their files."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int, UInt8

# For a split's decoded images, in units of 2**20 bytes. Small enough to leave room for a network
# on any accelerator; MNIST takes 45, CIFAR-10 146.
DEVICE_BUDGET_MB = 2048.0


class LazyImages:
    """Stands in for an array: images uint8 [N, H, W, C] that are read when they are indexed."""

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self,
        read: Callable[[Int[np.ndarray, "m"]], UInt8[np.ndarray, "m h w c"]],
        image_shape: tuple[int, int, int],
        places: Int[np.ndarray, "n"],
    ) -> None:
        """Takes `read`, which returns the images at `places` and is called by several threads."""
        self._read, self._places = read, places
        self.shape = (len(places), *image_shape)
        self.size = self.nbytes = int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, indices: Int[np.ndarray, "*batch"]) -> UInt8[np.ndarray, "*batch h w c"]:
        places = self._places[indices]
        return self._read(places.ravel()).reshape(*places.shape, *self.shape[1:])

    def select(self, indices: Int[np.ndarray, "m"] | slice) -> "LazyImages":
        """Returns the images at `indices`; nothing is read yet."""
        return LazyImages(self._read, self.shape[1:], self._places[indices])


Images = UInt8[np.ndarray, "n h w c"] | LazyImages


def exceeds(num_bytes: int, budget_mb: float | None) -> bool:
    """Tells whether `num_bytes` exceeds a budget in units of 2**20 bytes (None: no limit)."""
    return budget_mb is not None and num_bytes > budget_mb * 2**20


def within(images: Images, budget_mb: float | None) -> Images:
    """Returns `images`, as `LazyImages` if they exceed the budget."""
    if isinstance(images, LazyImages) or not exceeds(images.nbytes, budget_mb):
        return images
    return LazyImages(images.__getitem__, images.shape[1:], np.arange(len(images)))
