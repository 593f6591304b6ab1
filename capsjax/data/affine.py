"""One bilinear resampling by one matrix. A point is (row, column); rows run down."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Float, PRNGKeyArray

from capsjax._options import Options, not_negative, positive
from capsjax.data.transforms import Image, check_image
from capsjax.functional import to_unit, type_of_sums

Resampled = Float[Array, "h_out w_out c"]
Matrix = Float[Array, "2 2"]
Point = Float[Array, "2"]
Number = Float[Array, ""]
Size = tuple[int, int]  # rows and columns


def resample(image: Image, matrix: Matrix, offset: Point, size: Size) -> Resampled:
    """Returns the image whose pixel o is `image` at `matrix @ o + offset`, bilinear, black outside.

    As `scipy.ndimage.affine_transform` with `order=1, mode="grid-constant"`; uint8 become [0, 1].
    """
    check_image(image)
    image = to_unit(image)
    rows = jnp.arange(size[0], dtype=type_of_sums(image))[:, None]
    columns = jnp.arange(size[1], dtype=type_of_sums(image))[None, :]
    # Written out: a matrix product may be rounded to bfloat16 on accelerators.
    y = matrix[0, 0] * rows + matrix[0, 1] * columns + offset[0]
    x = matrix[1, 0] * rows + matrix[1, 1] * columns + offset[1]
    return jax.vmap(lambda channel: map_coordinates(channel, (y, x), order=1), -1, -1)(image)


def transform(image: Image, matrix: Matrix, translation: Point, size: Size) -> Resampled:
    """Moves the point p to matrix·p + translation.

    p is relative to the image's centre; the new point, to that of the result, which has `size`.
    """
    (a, b), (c, d) = matrix
    inverse = jnp.array([[d, -b], [-c, a]]) / (a * d - b * c)
    y = (size[0] - 1) / 2 + translation[0]
    x = (size[1] - 1) / 2 + translation[1]
    # Elementwise for the same reason as in `resample`.
    offset = jnp.array(
        [
            (image.shape[0] - 1) / 2 - inverse[0, 0] * y - inverse[0, 1] * x,
            (image.shape[1] - 1) / 2 - inverse[1, 0] * y - inverse[1, 1] * x,
        ]
    )
    return resample(image, inverse, offset, size)


def affine_matrix(
    rotation: Number | float = 0.0,
    shear: Number | float = 0.0,
    scale: Point | tuple[float, float] = (1.0, 1.0),
) -> Matrix:
    """Multiplies rotation, shear and scale, for `transform`.

    Args:
      rotation: in degrees, counter-clockwise as seen.
      shear: columns moved to the right per row downwards; 1 slants by 45°.
      scale: of rows and of columns.
    """
    angle = jnp.deg2rad(jnp.asarray(rotation, jnp.float32))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    vertical, horizontal = scale
    # [[cos, -sin], [sin, cos]] · [[1, 0], [shear, 1]] · diag(scale)
    return jnp.array(
        [
            [(cos - sin * shear) * vertical, -sin * horizontal],
            [(sin + cos * shear) * vertical, cos * horizontal],
        ]
    )


@dataclass(frozen=True)
class AffineRanges(Options):
    """What affine parameters are drawn from, all uniformly; the defaults are affNIST's.

    Attributes:
      max_rotation: degrees, either way.
      max_shear: either way; 1 slants by 45°.
      min_scale: of rows and of columns, drawn independently.
      max_scale: the same.
      max_translation: pixels, either way along each axis.
      keep_ink: translate only so far that no ink leaves the canvas. Where it cannot fit, its
        bounding box is put in the middle.
    """

    max_rotation: float = not_negative(20.0)
    max_shear: float = not_negative(0.2)
    min_scale: float = positive(0.8)
    max_scale: float = 1.2
    max_translation: float = not_negative(40.0)
    keep_ink: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_scale < self.min_scale:
            raise ValueError(f"min_scale {self.min_scale} and max_scale {self.max_scale}: no range")


class AffineParameters(NamedTuple):
    """The parameters of `affine_matrix` and `transform`."""

    rotation: Number
    shear: Number
    scale: Point
    translation: Point

    @property
    def matrix(self) -> Matrix:
        return affine_matrix(self.rotation, self.shear, self.scale)


def random_affine(
    key: PRNGKeyArray, image: Image, size: Size, ranges: AffineRanges
) -> AffineParameters:
    """Draws a transformation of `image` onto a canvas of `size`."""
    keys = jax.random.split(key, 4)
    rotation, shear = ranges.max_rotation, ranges.max_shear
    uniform = jax.random.uniform
    parameters = AffineParameters(
        rotation=uniform(keys[0], (), jnp.float32, -rotation, rotation),
        shear=uniform(keys[1], (), jnp.float32, -shear, shear),
        scale=uniform(keys[2], (2,), jnp.float32, ranges.min_scale, ranges.max_scale),
        translation=jnp.zeros(2),
    )
    high = jnp.full(2, ranges.max_translation)
    low = -high
    if ranges.keep_ink:
        first, last = ink_translations(image, parameters.matrix, size)
        low, high = jnp.clip(first, low, high), jnp.clip(last, low, high)
    return parameters._replace(translation=uniform(keys[3], (2,), jnp.float32, low, high))


def ink_translations(image: Image, matrix: Matrix, size: Size) -> tuple[Point, Point]:
    """Returns the least and the greatest translation that keep all ink on a canvas of `size`.

    Ink is every pixel that is not zero; interpolation spreads it by up to one pixel of `image` in
    each direction. If it cannot fit, both are the translation to the middle.
    """
    height, width, _ = image.shape
    ink = jnp.any(image > 0, axis=-1)
    rows = (jnp.arange(height) - (height - 1) / 2)[:, None]
    columns = (jnp.arange(width) - (width - 1) / 2)[None, :]

    def along(axis: int) -> tuple[Number, Number]:
        vertical, horizontal = matrix[axis]
        moved = vertical * rows + horizontal * columns
        reach = jnp.abs(vertical) + jnp.abs(horizontal)
        first = jnp.min(moved, where=ink, initial=jnp.inf) - reach
        last = jnp.max(moved, where=ink, initial=-jnp.inf) + reach
        # The pixels of the canvas are between -1 and n, both excluded.
        edge, blank = (size[axis] + 1) / 2, jnp.logical_not(jnp.any(ink))
        low, high = -edge - first, edge - last
        middle = (low + high) / 2
        low, high = jnp.where(blank, -edge, low), jnp.where(blank, edge, high)
        fits = low <= high
        return jnp.where(fits, low, middle), jnp.where(fits, high, middle)

    (top, bottom), (left, right) = along(0), along(1)
    return jnp.array([top, left]), jnp.array([bottom, right])
