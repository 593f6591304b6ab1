"""What networks do to images before anything else."""

from dataclasses import dataclass

from jaxtyping import Array, Float, UInt8

from capsjax.functional import normalize, to_unit
from capsjax.models.interface import check_images


@dataclass(frozen=True)
class Normalization:
    """Options of networks whose recipe normalises images.

    A part of the network, not of the data: so a checkpoint holds it, and images that are
    predicted, exported or perturbed are normalised like those it was trained on.

    Attributes:
      mean: by channel, of images in [0, 1]; () to leave them as they are.
      std: the same; positive.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Inputs:
    """Checks images, brings them to [0, 1] and normalises them.

    Attributes:
      shape: height, width and channels of an image.
      mean, std: see `Normalization`.
    """

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self):
        channels = self.shape[-1]
        lengths = len(self.mean), len(self.std)
        if lengths not in ((0, 0), (channels, channels)) or not all(s > 0 for s in self.std):
            raise ValueError(
                f"mean and std must have {channels} numbers each, one per channel, std positive, "
                f"or none; got {self.mean} and {self.std}"
            )

    def __call__(
        self, images: Float[Array, "n h w c"] | UInt8[Array, "n h w c"]
    ) -> Float[Array, "n h w c"]:
        """Raises ValueError unless `images` is a batch of images of this shape."""
        check_images(images, self.shape)
        return normalize(images, self.mean, self.std) if self.mean else to_unit(images)
