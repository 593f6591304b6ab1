"""Pure functions on poses and images. All act on the trailing axis and know nothing of batches."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, Shaped


def at_least_float32(x: Array | np.ndarray) -> Array:
    """`x` in float32 if its type is narrower, unchanged otherwise (float64 stays float64)."""
    return jnp.asarray(x).astype(jnp.promote_types(x.dtype, jnp.float32))


def safe_norm(
    x: Float[Array | np.ndarray, "*batch d"], *, keepdims: bool = False
) -> Float[Array, "*batch"] | Float[Array, "*batch 1"]:
    """Euclidean length of the last axis, with gradient 0 (not NaN) where `x` is 0.

    Computed in at least float32; the result has the type of `x`.

    Raises:
      TypeError: `x` is not a floating-point array.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"lengths are of floating arrays, got {x.dtype}: convert with astype")
    squared = jnp.sum(jnp.square(at_least_float32(x)), axis=-1, keepdims=keepdims)
    nonzero = squared > 0
    # Both sides of a `where` are differentiated: sqrt must not see the zeros at all.
    length = jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, squared, 1)), 0)
    return length.astype(x.dtype)


def squash(s: Float[Array | np.ndarray, "*batch d"]) -> Float[Array, "*batch d"]:
    """squash(s) = |s|² / (1 + |s|²) · s / |s|   (Sabour et al. 2017, eq. 1).

    Keeps the direction of the last axis and maps its length into [0, 1). Value and gradient are
    0 at s = 0. Computed in at least float32; the result has the type of `s`.

    Raises:
      TypeError: `s` is not floating.
    """
    if not jnp.issubdtype(s.dtype, jnp.floating):
        raise TypeError(f"squash takes floating arrays, got {s.dtype}: convert with astype")
    wide = at_least_float32(s)
    length = safe_norm(wide, keepdims=True)
    return (wide * (length / (1 + jnp.square(length)))).astype(s.dtype)


def exponential_squash(s: Float[Array | np.ndarray, "*batch d"]) -> Float[Array, "*batch d"]:
    """(1 − exp(−|s|)) · s / |s|   (Choi et al. 2019, eq. 2, after Xi et al. 2017).

    Like `squash`, but steeper near 0, where lengths are |s| and not |s|². At s = 0 the value is 0
    and the gradient the identity. Computed in at least float32; the result has the type of `s`.

    Raises:
      TypeError: `s` is not floating.
    """
    if not jnp.issubdtype(s.dtype, jnp.floating):
        raise TypeError(f"squash takes floating arrays, got {s.dtype}: convert with astype")
    wide = at_least_float32(s)
    length = safe_norm(wide, keepdims=True)
    # (1 − exp(−x)) / x is 1 − x/2 near 0: the quotient must not be formed there.
    small = length < 1e-4
    safe = jnp.where(small, 1, length)
    factor = jnp.where(small, 1 - length / 2, -jnp.expm1(-safe) / safe)
    return (wide * factor).astype(s.dtype)


def mask_poses(
    poses: Float[Array, "*#batch classes d"], mask: Num[Array, "*#batch classes"]
) -> Float[Array, "*_batch classes_d"]:
    """Class poses times a one-hot (or many-hot) `mask`, flattened: what the decoder sees."""
    masked = poses * mask[..., None].astype(poses.dtype)
    return masked.reshape(*masked.shape[:-2], -1)


def to_unit(image: Shaped[Array | np.ndarray, "*shape"]) -> Float[Array, "*shape"]:
    """Images as floats in [0, 1]: integers 0…255 (uint8) are scaled, floats returned unchanged.

    Raises:
      ValueError: for any other type: its range is not known.
    """
    image = jnp.asarray(image)
    if image.dtype == jnp.uint8:
        return image.astype(jnp.float32) / 255
    if jnp.issubdtype(image.dtype, jnp.floating):
        return image
    raise ValueError(f"image must be uint8 (0…255) or floating (0…1), got {image.dtype}")


def normalize(
    images: Shaped[Array | np.ndarray, "*shape c"], mean: Sequence[float], std: Sequence[float]
) -> Float[Array, "*shape c"]:
    """(x − mean) / std by channel, of images in [0, 1]; their floating type is kept.

    Raises:
      ValueError: there is not one `mean` and one positive `std` per channel.
    """
    channels = images.shape[-1]
    if len(mean) != channels or len(std) != channels or not all(s > 0 for s in std):
        raise ValueError(
            f"mean and std: expected {channels} numbers each, one per channel, std positive; got "
            f"{tuple(mean)} and {tuple(std)}"
        )
    x = to_unit(images)
    return (x - jnp.asarray(mean, x.dtype)) / jnp.asarray(std, x.dtype)
