"""Pure functions on one example, to be vmapped over a batch; see `affine` for rotations."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from capsjax.functional import to_unit

Image = Num[Array, "h w c"]
Place = Int[Array, "2"]  # row and column


def random_offset(key: PRNGKeyArray, max_shift: int) -> Place:
    """Draws a shift in rows and columns, uniform from −max_shift to max_shift."""
    return jax.random.randint(key, (2,), -max_shift, max_shift + 1)


def translate(image: Image, offset: Place, max_shift: int) -> Image:
    """Moves an image by `offset` rows down and columns right, at most the static `max_shift`."""
    check_image(image)
    margin = (max_shift, max_shift)
    padded = jnp.pad(image, (margin, margin, (0, 0)))
    top, left = max_shift - offset
    return lax.dynamic_slice(padded, (top, left, 0), image.shape)


def pad(image: Image, size: tuple[int, int]) -> Num[Array, "h_out w_out c"]:
    """Puts an image in the middle of a black canvas of `size`; an odd row goes to the bottom."""
    check_image(image)
    margins = [n - side for n, side in zip(size, image.shape, strict=False)]
    if min(margins) < 0:
        raise ValueError(f"size: {size} is smaller than the image {image.shape}")
    return jnp.pad(image, (*((m // 2, m - m // 2) for m in margins), (0, 0)))


def flip(image: Image, flipped: Bool[Array, ""] | bool = True) -> Image:
    """Mirrors the image, left for right, where `flipped`."""
    check_image(image)
    return jnp.where(flipped, image[:, ::-1], image)


def erase(image: Image, corner: Place, size: int) -> Image:
    """Blackens the square of `size` rows and columns whose top left pixel is `corner`."""
    check_image(image)
    rows, columns = (
        (jnp.arange(side) >= first) & (jnp.arange(side) < first + size)
        for side, first in zip(image.shape[:2], corner, strict=True)
    )
    return jnp.where((rows[:, None] & columns)[..., None], 0, image)


def overlay(images: Num[Array, "n h w c"]) -> Float[Array, "h w c"]:
    """Overlays images: the sum of their ink in [0, 1], at most 1 (Sabour et al. 2017, 6.1)."""
    return jnp.minimum(jnp.sum(to_unit(images), axis=0), 1)


def check_image(image: Array | np.ndarray) -> None:
    """Raises ValueError unless it is one image."""
    if image.ndim != 3:
        raise ValueError(f"expected one image [H, W, C], got shape {image.shape}; use vmap")
