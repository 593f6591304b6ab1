"""Options of networks: frozen dataclasses that check the values of their fields."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from capsjax._names import check_kind

_CHECK = "check"
# 1 / 1024, of the widest layers.
LEAST_WIDTH = 2.0**-10


def positive(default: Any) -> Any:
    """A field for a number, or a tuple of integers, greater than 0.

    A default of None allows None, and besides it integers.
    """

    def check(name: str, value: Any) -> None:
        if default is None:
            if value is None:
                return
            check_kind(name, value, 1)
        if not all(number > 0 for number in _numbers(name, value)):
            raise ValueError(f"{name} must be positive, got {value}")

    return _checked(default, check)


def not_negative(default: Any) -> Any:
    """A field for a number, or a tuple of integers, all at least 0."""

    def check(name: str, value: Any) -> None:
        if not all(number >= 0 for number in _numbers(name, value)):
            raise ValueError(f"{name} must not be negative, got {value}")

    return _checked(default, check)


def multiplier() -> Any:
    """A field for what multiplies the channels of a network: 1 as published."""

    def check(name: str, value: float) -> None:
        if value < LEAST_WIDTH:
            raise ValueError(
                f"{name} must be at least {LEAST_WIDTH}, got {value}: below it all layers are one "
                "channel wide, whatever its value"
            )

    return _checked(1.0, check)


def fraction(default: float) -> Any:
    """A field for a number in (0, 1]."""

    def check(name: str, value: float) -> None:
        if not 0 < value <= 1:
            raise ValueError(f"{name} must be in (0, 1], got {value}")

    return _checked(default, check)


def one_of(default: str, *others: str) -> Any:
    """A field for one of these words."""
    words = (default, *others)

    def check(name: str, value: str) -> None:
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}, got {value!r}")

    return _checked(default, check)


def scaled(channels: int, width: float) -> int:
    """`channels` times the multiplier `width`, at least 1."""
    return max(1, round(channels * width))


def check_lengths(**options: tuple) -> None:
    """Raises ValueError unless all `options` have the same number of entries, one or more."""
    lengths = {len(values) for values in options.values()}
    if len(lengths) > 1 or 0 in lengths:
        given = " and ".join(map(str, options.values()))
        raise ValueError(
            f"{' and '.join(options)} must have one number for each layer, got {given}"
        )


def _numbers(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        return (value,)
    for number in value:
        check_kind(f"each of {name}", number, 1)
    return value


def _checked(default: Any, check: Callable[[str, Any], None]) -> Any:
    return field(default=default, metadata={_CHECK: check})


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
            value = getattr(self, option.name)
            check_kind(option.name, value, option.default)
            if _CHECK in option.metadata:
                option.metadata[_CHECK](option.name, value)


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
