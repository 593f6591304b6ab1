"""Options of networks: frozen dataclasses that check the values of their fields."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from capsjax._names import check_kind

# 1 / 1024, of the widest layers.
LEAST_WIDTH = 2.0**-10


def positive(default: Any) -> Any:
    """A field for a number, or a tuple of integers, greater than 0.

    If the default is None, the value may be None or an integer.
    """
    return _checked(default, lambda value: value > 0, "must be positive")


def not_negative(default: Any) -> Any:
    """A field for a number, or a tuple of integers, all at least 0."""
    return _checked(default, lambda value: value >= 0, "must not be negative")


def multiplier() -> Any:
    """A field for what multiplies the channels of a network: 1 as published."""
    requirement = (
        f"must be at least {LEAST_WIDTH}, below which all layers are one channel wide whatever its "
        "value"
    )
    return _checked(1.0, lambda value: value >= LEAST_WIDTH, requirement)


def fraction(default: float) -> Any:
    """A field for a number in (0, 1]."""
    return _checked(default, lambda value: 0 < value <= 1, "must be in (0, 1]")


def one_of(default: str, *others: str) -> Any:
    """A field for one of these words."""
    words = (default, *others)
    return _checked(default, lambda value: value in words, f"must be one of {', '.join(words)}")


def scaled(channels: int, width: float) -> int:
    """`channels` times the multiplier `width`, at least 1."""
    return max(1, round(channels * width))


def check_lengths(**options: tuple) -> None:
    """Raises ValueError unless all `options` have the same number of entries, one or more."""
    lengths = {len(values) for values in options.values()}
    if len(lengths) > 1 or 0 in lengths:
        values = " and ".join(map(str, options.values()))
        raise ValueError(
            f"{' and '.join(options)} must have one number for each layer, got {values}"
        )


def _checked(default: Any, accepts: Callable[[Any], bool], requirement: str) -> Any:
    """A field whose value, or each element of a tuple, must be one that `accepts` accepts."""
    return field(default=default, metadata={"accepts": accepts, "requirement": requirement})


@dataclass(frozen=True)
class Config:
    """Options of a network; raises ValueError for a value that a field does not allow.

    Attributes:
      width: for small machines: multiplies the number of channels, capsules and hidden units of
        every layer below the classes, but not the sizes of poses and kernels.
    """

    width: float = multiplier()

    def __post_init__(self) -> None:
        for option in fields(self):
            name, value, default = option.name, getattr(self, option.name), option.default
            if value is None and default is None:
                continue
            check_kind(name, value, 1 if default is None else default)
            if "accepts" not in option.metadata:
                continue
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(value, tuple):
                    check_kind(f"each of {name}", number, 1)
                if not option.metadata["accepts"](number):
                    raise ValueError(f"{name} {option.metadata['requirement']}, got {value!r}")


@dataclass(frozen=True)
class Normalization(Config):
    """Options of networks whose recipe normalises images.

    They are part of the network, not of the data: a checkpoint holds them, so prediction, export
    and analysis normalise images as training did.

    Attributes:
      mean: one number per channel, of images in [0, 1]; () for no normalisation.
      std: one positive number per channel; () for no normalisation.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
