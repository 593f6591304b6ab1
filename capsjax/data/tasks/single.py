"""Recipes of one object per image: moved by whole pixels, or by an affine transformation."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from capsjax.data.affine import (
    AffineParameters,
    AffineRanges,
    affine_matrix,
    random_affine,
    transform,
)
from capsjax.data.tasks.task import Arrays, Example, Objects
from capsjax.data.transforms import flip, pad, random_offset, translate
from capsjax.functional import to_unit


class Moves(NamedTuple):
    """How one image is moved.

    Attributes:
      source: its place in the arrays.
      offset: rows down, columns to the right.
      flipped: left for right.
      rotation: in degrees, counter-clockwise.
    """

    source: Int[Array, ""]
    offset: Int[Array, "2"]
    flipped: Bool[Array, ""]
    rotation: Float[Array, ""]


@dataclass(frozen=True)
class Moved:
    """A source image on a canvas, shifted, perhaps flipped and rotated.

    Attributes:
      num_classes: length of the labels.
      canvas: rows and columns, 0 for those of the source.
      max_shift: pixels from the middle, either way along each axis, uniform.
      flip: mirror half of the images.
      max_rotation: degrees, either way, uniform.
    """

    num_classes: int
    canvas: int = 0
    max_shift: int = 0
    flip: bool = False
    max_rotation: float = 0.0

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        """The canvas; see `Recipe`."""
        height, width, channels = source
        return (self.canvas or height), (self.canvas or width), channels

    def sources(
        self, key: PRNGKeyArray, labels: Int[Array, "n"], index: Int[Array, ""]
    ) -> Int[Array, "1"]:
        """See `Recipe`."""
        return index[None]

    def draw(self, key: PRNGKeyArray, arrays: Arrays, index: Int[Array, ""]) -> Moves:
        """See `Recipe`."""
        offset_key, flip_key, rotation_key = jax.random.split(key, 3)
        return Moves(
            source=index,
            offset=random_offset(offset_key, self.max_shift),
            flipped=jax.random.bernoulli(flip_key) & self.flip,
            rotation=jax.random.uniform(
                rotation_key, (), jnp.float32, -self.max_rotation, self.max_rotation
            ),
        )

    def render(self, arrays: Arrays, parameters: Moves) -> Example:
        """See `Recipe`."""
        source = arrays.images[parameters.source]
        height, width, _ = self.image_shape(source.shape)
        if self.max_rotation:
            mirror = jnp.where(parameters.flipped, -1.0, 1.0)
            matrix = affine_matrix(parameters.rotation) * jnp.stack([jnp.ones(()), mirror])
            image = transform(
                source, matrix, parameters.offset.astype(jnp.float32), (height, width)
            )
        else:
            # Whole pixels need no resampling.
            canvas = pad(source, (height, width))
            if self.flip:
                canvas = flip(canvas, parameters.flipped)
            image = to_unit(translate(canvas, parameters.offset, self.max_shift))
        return single(image, arrays.labels[parameters.source], self.num_classes)


class Transformed(NamedTuple):
    """Which image, and what is done to it."""

    source: Int[Array, ""]
    affine: AffineParameters


@dataclass(frozen=True)
class AffineTransformed:
    """A source image on a canvas under a random affine transformation.

    Attributes:
      num_classes: length of the labels.
      canvas: rows and columns.
      ranges: what the transformation is drawn from.
    """

    num_classes: int
    canvas: int
    ranges: AffineRanges

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        """The canvas; see `Recipe`."""
        return self.canvas, self.canvas, source[-1]

    def sources(
        self, key: PRNGKeyArray, labels: Int[Array, "n"], index: Int[Array, ""]
    ) -> Int[Array, "1"]:
        """See `Recipe`."""
        return index[None]

    def draw(self, key: PRNGKeyArray, arrays: Arrays, index: Int[Array, ""]) -> Transformed:
        """See `Recipe`."""
        size = (self.canvas, self.canvas)
        return Transformed(index, random_affine(key, arrays.images[index], size, self.ranges))

    def render(self, arrays: Arrays, parameters: Transformed) -> Example:
        """See `Recipe`."""
        source, affine = parameters
        size = (self.canvas, self.canvas)
        image = transform(arrays.images[source], affine.matrix, affine.translation, size)
        return single(image, arrays.labels[source], self.num_classes)


def single(image: Float[Array, "h w c"], label: Int[Array, ""], num_classes: int) -> Example:
    """An example of one object, which is the whole image."""
    one_hot = jax.nn.one_hot(label, num_classes)
    return Example(image, one_hot, Objects(image[None], one_hot[None]))
