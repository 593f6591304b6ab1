"""Arithmetic of layer sizes."""

from collections.abc import Sequence
from typing import Any


def scaled(channels: int, width: float) -> int:
    """`channels` times the multiplier `width`, at least 1."""
    return max(1, round(channels * width))


def after_convolutions(
    input_shape: tuple[int, int, int], convolutions: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Height and width after unpadded convolutions, each (kernel size, stride).

    Raises:
      ValueError: nothing would be left; the message gives the smallest image that works.
    """
    height, width, _ = input_shape
    smallest = 1
    for kernel, stride in reversed(convolutions):
        smallest = (smallest - 1) * stride + kernel
    if min(height, width) < smallest:
        kernels = ", ".join(f"{kernel}×{kernel}" for kernel, _ in convolutions)
        raise ValueError(
            f"input_shape {height}×{width} is too small for unpadded convolutions of {kernels}: "
            f"the smallest is {smallest}×{smallest}; enlarge the images or lower kernel_size"
        )
    for kernel, stride in convolutions:
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return height, width


def check_positive(config: Any, *names: str) -> None:
    """Raises ValueError unless the fields `names` of `config` (numbers, or several) are > 0."""
    for name in names:
        value = getattr(config, name)
        if not all(number > 0 for number in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{name} must be positive, got {value}")


def check_choice(config: Any, name: str, choices: Sequence[str]) -> None:
    """Raises ValueError unless the field `name` of `config` is one of `choices`."""
    value = getattr(config, name)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
