"""Centred digits, trained on with the distortions of Efficient-CapsNet."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from capsjax.data.accuracy import top
from capsjax.data.affine import affine_matrix, ink_translations, transform
from capsjax.data.tasks.single import Moved, OneObject
from capsjax.data.tasks.source_splits import Reader, fixed_set, read_splits
from capsjax.data.tasks.task import Example, Task
from capsjax.data.transforms import erase


class Distortions(NamedTuple):
    """What is done to one image.

    Attributes:
      rotation: in degrees, counter-clockwise.
      translation: rows down, columns to the right, after the rotation.
      squeeze: the part by which the image gets narrower, last.
      corner: the top left pixel of the square that is erased.
    """

    rotation: Float[Array, ""]
    translation: Float[Array, "2"]
    squeeze: Float[Array, ""]
    corner: Int[Array, "2"]

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

    Attributes:
      num_classes: length of the labels.
      max_rotation: degrees, either way.
      max_squeeze: of the width, in [0, 1).
      erased: rows and columns of the square; 0 for none.
    """

    max_rotation: float = 30.0
    max_squeeze: float = 0.25
    erased: int = 4

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        """The source's; see `Recipe`."""
        height, width, channels = source
        return height, width, channels

    def draw(
        self, key: PRNGKeyArray, index: Int[Array, ""], images: UInt8[Array, "1 h w c"]
    ) -> Distortions:
        """See `Recipe`."""
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
        """See `Recipe`."""
        (source,) = images
        image = transform(source, parameters.matrix, parameters.shift, source.shape[:2])
        return self.example(erase(image, parameters.corner, self.erased), labels[0])


@dataclass(frozen=True)
class DistortedTask:
    """The images of a data set, distorted in training and as they are in evaluation.

    Attributes:
      source: of the images, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      max_rotation, max_squeeze, erased: see `Distorted`.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    max_rotation: float = 30.0
    max_squeeze: float = 0.25
    erased: int = 4

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`."""
        splits = read_splits(self.source, self.validation_fraction, self.train_fraction, read)
        side = min(splits.train.images.shape[1:3])
        if not self.max_rotation >= 0:
            raise ValueError(f"max_rotation must be ≥ 0, got {self.max_rotation}")
        if not 0 <= self.max_squeeze < 1:
            raise ValueError(f"max_squeeze must be in [0, 1), got {self.max_squeeze}")
        if not 0 <= 3 * self.erased <= side:
            raise ValueError(
                f"erased must be in [0, {side // 3}] for these images, got {self.erased}"
            )
        as_it_is = Moved(len(splits.class_names))
        return Task(
            name=name,
            class_names=splits.class_names,
            train=splits.train,
            recipe=Distorted(
                len(splits.class_names), self.max_rotation, self.max_squeeze, self.erased
            ),
            validation=fixed_set(splits.validation, as_it_is),
            rule=top(1),
            tests={"test": lambda: fixed_set(splits.test(), as_it_is)},
        )
