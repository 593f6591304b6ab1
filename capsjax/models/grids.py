"""Convolutions without anything between them, and the sizes of their maps."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from flax import nnx

from capsjax.layers import conv2d


class Window(NamedTuple):
    """A convolution, pooling or convolutional capsule layer, along one axis of a map."""

    kernel_size: int
    strides: int = 1
    padding: int = 0  # zeros on each side


def grids(input_shape: tuple[int, int, int], windows: Sequence[Window]) -> list[tuple[int, int]]:
    """Returns height and width after each of `windows`, applied in turn."""
    height, width, _ = input_shape
    smallest = 1
    for k, strides, padding in reversed(windows):
        smallest = max(1, (smallest - 1) * strides + k - 2 * padding)
    if min(height, width) < smallest:
        sizes = ", ".join(str(window.kernel_size) for window in windows)
        raise ValueError(
            f"input_shape {height}×{width} is too small for windows of kernel_size {sizes} one "
            f"after another: the smallest is {smallest}×{smallest}"
        )
    result = []
    for k, strides, padding in windows:
        height, width = ((n + 2 * padding - k) // strides + 1 for n in (height, width))
        result.append((height, width))
    return result


def convolutions(features: Sequence[int], windows: Sequence[Window], **options: Any) -> nnx.List:
    """Makes convolutions between consecutive `features`; `options` go to `conv2d`."""
    layers = []
    for (n, m), window in zip(pairwise(features), windows, strict=True):
        chosen = {"strides": window.strides, "padding": window.padding or "VALID"} | options
        layers.append(conv2d(n, m, window.kernel_size, **chosen))
    return nnx.List(layers)
