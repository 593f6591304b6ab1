"""The one place that knows how a convolution is computed on which backend."""

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from capsjax.functional import windows

Padding = str | Sequence[tuple[int, int]]


def convolve(
    images: Float[Array, "n h w c"],
    kernel: Float[Array, "kh kw c features"],
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "VALID",
    precision: lax.PrecisionLike = None,
) -> Float[Array, "n h_out w_out features"]:
    """A 2-D convolution (cross-correlation), as patches on CPU and natively elsewhere.

    XLA's own strided convolution is slow to differentiate on CPU (24 times slower than one
    matrix product over patches for the primary capsules' 9×9 stride 2); accelerators have it in
    hardware. The choice is made when the program is lowered, so an exported model carries both.
    """
    return lax.platform_dependent(
        images,
        kernel,
        cpu=partial(convolve_patches, strides=strides, padding=padding, precision=precision),
        default=partial(convolve_native, strides=strides, padding=padding, precision=precision),
    )


def convolve_native(
    images: Float[Array, "n h w c"],
    kernel: Float[Array, "kh kw c features"],
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "VALID",
    precision: lax.PrecisionLike = None,
) -> Float[Array, "n h_out w_out features"]:
    """The same by XLA's convolution."""
    return lax.conv_general_dilated(
        images,
        kernel,
        strides,
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=precision,
    )


def convolve_patches(
    images: Float[Array, "n h w c"],
    kernel: Float[Array, "kh kw c features"],
    strides: tuple[int, int] = (1, 1),
    padding: Padding = "VALID",
    precision: lax.PrecisionLike = None,
) -> Float[Array, "n h_out w_out features"]:
    """The same as one matrix product over all patches."""
    kh, kw, channels, features = kernel.shape
    patches = windows(images, (kh, kw), strides, padding)
    patches = patches.reshape(*patches.shape[:-2], kh * kw * channels)
    return jnp.dot(patches, kernel.reshape(-1, features), precision=precision)


def conv2d(
    in_features: int,
    out_features: int,
    kernel_size: int,
    *,
    strides: int = 1,
    padding: str = "VALID",
    use_bias: bool = True,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """An `nnx.Conv` with a square kernel that computes by `convolve`."""
    return nnx.Conv(
        in_features,
        out_features,
        (kernel_size, kernel_size),
        strides=(strides, strides),
        padding=padding,
        use_bias=use_bias,
        conv_general_dilated=_conv_general_dilated,
        rngs=rngs,
    )


def _conv_general_dilated(
    images, kernel, strides, padding, *, precision, **undilated_and_ungrouped
):
    """`convolve` behind the signature that `nnx.Conv` calls; `conv2d` sets nothing it drops."""
    return convolve(images, kernel, strides, padding, precision)
