"""Recipes of one object per image: moved by whole pixels, or by an affine transformation."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from capsjax.data.affine import (
    AffineParameters,
    AffineRanges,
    affine_matrix,
    random_affine,
    transform,
)
from capsjax.data.tasks.task import Example, Index, Objects
from capsjax.data.transforms import flip, pad, random_offset, translate
from capsjax.functional import to_unit


class Moves(NamedTuple):
    """How one image is moved."""

    offset: Int[Array, "2"]  # rows down, columns to the right
    flipped: Bool[Array, ""]  # left for right
    rotation: Float[Array, ""]  # in degrees, counter-clockwise


@dataclass(frozen=True)
class OneObject:
    """What recipes of one object have in common."""

    num_classes: int  # length of the labels

    def choose(self, key: PRNGKeyArray, labels: Int[Array, "n"], index: Index) -> Int[Array, "1"]:
        return index[None]

    def example(self, image: Float[Array, "h w c"], label: Int[Array, ""]) -> Example:
        """Returns an example of one object, which is the whole image."""
        one_hot = jax.nn.one_hot(label, self.num_classes)
        return Example(image, one_hot, Objects(image[None], one_hot[None]))


@dataclass(frozen=True)
class Moved(OneObject):
    """A source image on a canvas, shifted, perhaps flipped and rotated.

    Attributes:
      canvas: rows and columns, 0 for the source's own.
      max_shift: pixels from the middle, either way along each axis, uniform.
      flip: mirror half of the images.
      max_rotation: degrees, either way, uniform.
    """

    canvas: int = 0
    max_shift: int = 0
    flip: bool = False
    max_rotation: float = 0.0

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        height, width, channels = source
        return (self.canvas or height), (self.canvas or width), channels

    def draw(self, key: PRNGKeyArray, index: Index, images: UInt8[Array, "1 h w c"]) -> Moves:
        offset_key, flip_key, rotation_key = jax.random.split(key, 3)
        return Moves(
            offset=random_offset(offset_key, self.max_shift),
            flipped=jax.random.bernoulli(flip_key) & self.flip,
            rotation=jax.random.uniform(
                rotation_key, (), jnp.float32, -self.max_rotation, self.max_rotation
            ),
        )

    def render(
        self, images: UInt8[Array, "1 h w c"], labels: Int[Array, "1"], parameters: Moves
    ) -> Example:
        (source,) = images
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
        return self.example(image, labels[0])


class Transformed(NamedTuple):
    """What is done to one image."""

    affine: AffineParameters


@dataclass(frozen=True)
class AffineTransformed(OneObject):
    """A source image on a canvas under a random affine transformation.

    Attributes:
      canvas: rows and columns.
      ranges: what the transformation is drawn from.
    """

    canvas: int
    ranges: AffineRanges

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        return self.canvas, self.canvas, source[-1]

    def draw(self, key: PRNGKeyArray, index: Index, images: UInt8[Array, "1 h w c"]) -> Transformed:
        return Transformed(random_affine(key, images[0], (self.canvas, self.canvas), self.ranges))

    def render(
        self, images: UInt8[Array, "1 h w c"], labels: Int[Array, "1"], parameters: Transformed
    ) -> Example:
        size = (self.canvas, self.canvas)
        affine = parameters.affine
        image = transform(images[0], affine.matrix, affine.translation, size)
        return self.example(image, labels[0])
