"""Pure functions on poses and images. They act on trailing axes; leading ones are a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Num, Shaped


def check_array(name: str, x: Any) -> None:
    """Raises TypeError unless `x` is a JAX (concrete or traced) or NumPy array."""
    if not isinstance(x, jax.Array | np.ndarray | np.generic):
        raise TypeError(f"{name} must be an array, got {type(x).__name__}: use jnp.asarray")


def check_floating(name: str, x: Any) -> None:
    """Raises TypeError unless `x` is an array of a floating type."""
    check_array(name, x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} must have a floating dtype, got {x.dtype}: convert with astype")


def identity(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns `x`."""
    return x


def relu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Calls `jax.nn.relu`. Layers store this function: unlike JAX's own it can be pickled."""
    return jax.nn.relu(x)


def type_of_sums(*of: Any) -> Any:
    """Returns the dtype in which to sum these arrays or dtypes: at least float32."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*of, jnp.float32)


def at_least_float32(x: Array | np.ndarray) -> Array:
    """Returns `x` in float32 if its type is narrower, else unchanged (float64 stays float64)."""
    check_array("x", x)
    return jnp.asarray(x).astype(type_of_sums(x))


def safe_norm(
    x: Float[Array | np.ndarray, "*batch d"], *, keepdims: bool = False
) -> Float[Array, "*batch"] | Float[Array, "*batch 1"]:
    """Returns the Euclidean length of the last axis, with gradient 0 (not NaN) where `x` is 0.

    Accurate for every length that the type can hold: squares neither overflow nor underflow.
    Computed in at least float32; the result has the type of `x`.
    """
    check_floating("x", x)
    wide = at_least_float32(x)
    # The scale of a zero vector would be so large that its square overflows in second derivatives.
    scale = jnp.where(jnp.any(wide, axis=-1, keepdims=True), _scale(wide), 1)
    length = (_length(wide * scale) / scale).astype(jnp.result_type(x))
    return length if keepdims else length[..., 0]


def squash(s: Float[Array | np.ndarray, "*batch d"]) -> Float[Array, "*batch d"]:
    """squash(s) = |s|² / (1 + |s|²) · s / |s|   (Sabour et al. 2017, eq. 1).

    Keeps the direction of the last axis and maps its length into [0, 1). Value and gradient are
    0 at s = 0. Computed in at least float32; the result has the type of `s`.
    """
    return _shortened(s, lambda length, scale: length / (jnp.square(scale) + jnp.square(length)))


def exponential_squash(s: Float[Array | np.ndarray, "*batch d"]) -> Float[Array, "*batch d"]:
    """(1 − exp(−|s|)) · s / |s|   (Choi et al. 2019, eq. 2, after Xi et al. 2017).

    Like `squash`, but steeper near 0, where lengths are |s| and not |s|². At s = 0 the value is 0
    and the gradient the identity. Computed in at least float32; the result has the type of `s`.
    """

    def factor(length: Array, scale: Array) -> Array:
        # (1 − exp(−x)) / x is 1 − x/2 + x²/6 near 0: the quotient must not be formed there.
        small = length < 1e-4
        safe = jnp.where(small, 1, length)
        return jnp.where(small, 1 - length / 2 + length**2 / 6, -jnp.expm1(-safe / scale) / safe)

    return _shortened(s, factor)


def _shortened(
    s: Float[Array | np.ndarray, "*batch d"], factor: Callable[[Array, Array], Array]
) -> Float[Array, "*batch d"]:
    """Returns `s` · f(|s|), with `factor(x, c)` = f(x / c) / c and a c that keeps x in range."""
    check_floating("s", s)
    wide = at_least_float32(s)
    scale = jnp.minimum(_scale(wide), 1)  # not above 1: f(x / c) would overflow
    scaled = wide * scale
    return (scaled * factor(_length(scaled), scale)).astype(jnp.result_type(s))


def _scale(x: Float[Array, "*batch d"]) -> Float[Array, "*batch 1"]:
    """Returns powers of two, from exponent bits, that bring the largest entry into [1, 4)."""
    info = jnp.finfo(x.dtype)
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True, initial=0))
    exponent = lax.bitcast_convert_type(largest, f"int{info.bits}") >> info.nmant
    inverse = jnp.maximum(2 * (info.maxexp - 1) - exponent, 1)
    return lax.bitcast_convert_type(inverse << info.nmant, x.dtype)


def _length(x: Float[Array, "*batch d"]) -> Float[Array, "*batch 1"]:
    squared = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    zero = squared == 0
    # Both sides of a `where` are differentiated: sqrt must not see the zeros at all.
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squared)))


def mask_poses(
    poses: Float[Array, "*#batch classes d"], mask: Num[Array, "*#batch classes"]
) -> Float[Array, "*_batch classes_d"]:
    """Multiplies class poses by a one-hot (or multi-hot) `mask` and flattens: a decoder's input."""
    check_array("poses", poses)
    check_array("mask", mask)
    if mask.ndim + 1 != poses.ndim or mask.shape[-1] != poses.shape[-2]:
        raise ValueError(
            f"mask must have the axes of poses {poses.shape} but for the last, got shape "
            f"{mask.shape}; for class numbers pass jax.nn.one_hot(labels, {poses.shape[-2]})."
        )
    masked = poses * mask[..., None].astype(poses.dtype)
    return lax.collapse(masked, masked.ndim - 2)


def to_unit(image: Shaped[Array | np.ndarray, "*shape"]) -> Float[Array, "*shape"]:
    """Returns images as floats in [0, 1]; the library converts all images it is given with this.

    uint8 images, from 0 to 255, are divided by 255. Floats are expected in [0, 1] and returned
    unchanged; values outside, such as those of normalised images, are not clipped. Floats from 0 to
    255 are rejected in NumPy arrays only: checking a JAX array would mean waiting for its device.

    Raises:
      ValueError: neither uint8 nor floating, or a NumPy array of floats with values above 16.
    """
    check_range(image)
    given, image = image.dtype, jnp.asarray(image)
    if image.dtype == jnp.uint8:
        return image.astype(jnp.float32) / 255
    if jnp.issubdtype(image.dtype, jnp.floating):
        return image
    raise ValueError(
        f"image must be uint8 (0…255) or floating (0…1), got {given}: pass "
        "images.astype(np.uint8) if they are from 0 to 255"
    )


def check_range(image: Array | np.ndarray) -> None:
    """Raises ValueError for a NumPy array of floats that go up to 255."""
    if isinstance(image, np.ndarray) and image.dtype.kind == "f" and image.max(initial=0) > 16:
        raise ValueError(f"image must be in [0, 1], got floats up to {image.max()}: divide by 255")


def normalize(
    images: Shaped[Array | np.ndarray, "*shape c"], mean: Sequence[float], std: Sequence[float]
) -> Float[Array, "*shape c"]:
    """Returns (x − mean) / std by channel, of images in [0, 1]; their floating type is kept."""
    check_array("images", images)
    channels = images.shape[-1]
    if len(mean) != channels or len(std) != channels or not all(s > 0 for s in std):
        raise ValueError(
            f"mean and std must have {channels} numbers each, one per channel, std positive; got "
            f"{tuple(mean)} and {tuple(std)}"
        )
    x = to_unit(images)
    return (x - jnp.asarray(mean, x.dtype)) / jnp.asarray(std, x.dtype)
