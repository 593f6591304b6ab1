"""How a convolution is computed on each platform."""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from capsjax.routing import choose_block_size, in_blocks
from capsjax.routing._checks import check_counts
from capsjax.routing.patches import Padding, Windows, gather

_LECUN_NORMAL = nnx.initializers.lecun_normal()


def convolve(
    images: Float[Array, "n h w c"],
    kernel: Float[Array, "k k c features"],
    stride: int = 1,
    padding: Padding | Sequence[tuple[int, int]] = "VALID",
    precision: lax.PrecisionLike = None,
) -> Float[Array, "n h_out w_out features"]:
    """Convolves (cross-correlates) in 2-D, as patches on CPU and natively elsewhere.

    XLA's own strided convolution is slow to differentiate on CPU (24 times slower than one
    matrix product over patches for the primary capsules' 9×9 stride 2); accelerators have it in
    hardware. The choice is made when the program is lowered, so an exported model carries both.
    Before you change it, measure in training: on a CPU, a narrow convolution of stride 1 is faster
    natively when it runs alone, but several times slower in the loop over steps.

    A CPU convolves a few images at a time and recomputes their patches in the backward pass. They
    stay in cache, which made training steps up to 40 % shorter.
    """
    if images.shape[-1] != kernel.shape[-2]:
        raise ValueError(f"images must have {kernel.shape[-2]} channels, got shape {images.shape}")

    def on_cpu(images: Array, kernel: Array) -> Array:
        def patches(block: Array) -> Array:
            return convolve_patches(block, kernel, stride, padding, precision)

        _, height, width, _ = jax.eval_shape(patches, images).shape
        bytes_per_image = 4 * height * width * math.prod(kernel.shape[:-1])
        block_size = choose_block_size(bytes_per_image, shared_bytes=4 * kernel.size)
        return in_blocks(patches, images, block_size)

    native = partial(convolve_native, stride=stride, padding=padding, precision=precision)
    return lax.platform_dependent(images, kernel, cpu=on_cpu, default=native)


def convolve_native(images, kernel, stride=1, padding="VALID", precision=None):
    """Does `convolve` by XLA's convolution."""
    axes = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        images, kernel, (stride, stride), padding, dimension_numbers=axes, precision=precision
    )


def convolve_patches(images, kernel, stride=1, padding="VALID", precision=None):
    """Does `convolve` as one matrix product over all patches."""
    if not isinstance(padding, str):
        images, padding = jnp.pad(images, [(0, 0), *padding, (0, 0)]), "VALID"
    # First the columns of a window, then its rows: fewer and longer slices (18 for 9×9 windows, not
    # 81), which made the training of CapsNet a sixth shorter.
    patches, k = images, kernel.shape[0]
    for axis in (2, 1):
        windows = Windows.of(images.shape[axis], k, stride, padding)
        patches = gather(patches, {axis: windows}, k, stride)
    return jnp.dot(patches, kernel.reshape(-1, kernel.shape[-1]), precision=precision)


def conv2d(
    in_features: int,
    out_features: int,
    kernel_size: int,
    *,
    strides: int = 1,
    padding: str | int = "VALID",
    use_bias: bool = True,
    kernel_init: nnx.Initializer = _LECUN_NORMAL,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """Makes an `nnx.Conv` with a square kernel that computes by `convolve`.

    `padding` is "SAME", "VALID" or the number of zeros on each side.
    """
    check_counts(kernel_size=kernel_size, strides=strides)
    return nnx.Conv(
        in_features,
        out_features,
        (kernel_size, kernel_size),
        strides=(strides, strides),
        padding=padding,
        use_bias=use_bias,
        kernel_init=kernel_init,
        conv_general_dilated=_conv_general_dilated,
        rngs=rngs,
    )


def _conv_general_dilated(images, kernel, strides, padding, *, precision, **_):
    # `conv2d` leaves the other options of `nnx.Conv` unset.
    return convolve(images, kernel, strides[0], padding, precision)
