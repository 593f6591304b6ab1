"""Centred digits, trained on with the distortions of Efficient-CapsNet."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from capsjax._options import decay, not_negative
from capsjax.data.accuracy import top
from capsjax.data.affine import affine_matrix, ink_translations, transform
from capsjax.data.tasks.single import Moved, OneObject
from capsjax.data.tasks.source_splits import Family, FromSource, Reader
from capsjax.data.tasks.task import Example, Index, Task
from capsjax.data.transforms import erase


class Distortions(NamedTuple):
    """What is done to one image."""

    rotation: Float[Array, ""]  # in degrees, counter-clockwise
    translation: Float[Array, "2"]  # rows down, columns to the right, after the rotation
    squeeze: Float[Array, ""]  # the part by which the image gets narrower, last
    corner: Int[Array, "2"]  # the top left pixel of the square that is erased

    @property
    def matrix(self) -> Float[Array, "2 2"]:
        """The rotation and the squeeze in one."""
        return affine_matrix(self.rotation) * self._scale[:, None]

    @property
    def shift(self) -> Float[Array, "2"]:
        """What the translation is after the squeeze."""
        return self.translation * self._scale

    @property
    def _scale(self) -> Float[Array, "2"]:
        return jnp.stack([jnp.ones_like(self.squeeze), 1 - self.squeeze])


@dataclass(frozen=True)
class Distorted(OneObject):
    """A source image turned, shifted and squeezed in one resampling, and with a square erased.

    Mazzia et al. 2021, as the released code draws them: each amount is |z| of its maximum, z normal
    with standard deviation 0.33 and at most 1. Half of the images are turned. A shift is towards
    one side, of as many whole pixels as its part of the margin between the ink and that side.

    The options are those of `DistortedTask`.
    """

    max_rotation: float
    max_squeeze: float
    erased: int

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        height, width, channels = source
        return height, width, channels

    def draw(self, key: PRNGKeyArray, index: Index, images: UInt8[Array, "1 h w c"]) -> Distortions:
        normal_key, turned_key, side_key, corner_key = jax.random.split(key, 4)
        turn, down, right, squeeze = jnp.clip(0.33 * jax.random.normal(normal_key, (4,)), -1, 1)
        rotation = self.max_rotation * turn * jax.random.bernoulli(turned_key)
        _, height, width, _ = images.shape
        size = (height, width)
        least, greatest = ink_translations(images[0], affine_matrix(rotation), size)
        towards_end = jax.random.bernoulli(side_key, shape=(2,))
        margins = jnp.where(towards_end, jnp.maximum(greatest, 0), jnp.minimum(least, 0))
        # The erased square keeps its own size of distance from the first rows and columns.
        first, last = self.erased, jnp.asarray(size) - 2 * self.erased
        return Distortions(
            rotation=rotation,
            translation=jnp.trunc(jnp.abs(jnp.stack([down, right])) * margins),
            squeeze=self.max_squeeze * jnp.abs(squeeze),
            corner=jax.random.randint(corner_key, (2,), first, jnp.maximum(last, first) + 1),
        )

    def render(
        self, images: UInt8[Array, "1 h w c"], labels: Int[Array, "1"], parameters: Distortions
    ) -> Example:
        (source,) = images
        image = transform(source, parameters.matrix, parameters.shift, source.shape[:2])
        return self.example(erase(image, parameters.corner, self.erased), labels[0])


@dataclass(frozen=True)
class DistortedTask(Family, FromSource):
    """The images of a data set, distorted in training and as they are in evaluation.

    Attributes:
      max_rotation: degrees, either way.
      max_squeeze: of the width.
      erased: rows and columns of the square that is erased; 0 for none.
    """

    max_rotation: float = not_negative(30.0)
    max_squeeze: float = decay(0.25)
    erased: int = 4

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task, called `name`."""
        splits = self.read(self.source, read)
        side = min(splits.train.images.shape[1:3])
        if not 0 <= 3 * self.erased <= side:
            raise ValueError(
                f"erased must be in [0, {side // 3}] for these images, got {self.erased}"
            )
        num_classes = len(splits.class_names)
        distorted = Distorted(num_classes, self.max_rotation, self.max_squeeze, self.erased)
        as_it_is = Moved(num_classes)
        return splits.task(name, distorted, as_it_is, {"test": (as_it_is, 1)}, rule=top(1))
