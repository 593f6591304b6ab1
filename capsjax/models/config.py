"""Options of networks: frozen dataclasses that check the values of their fields."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from capsjax._options import Options, checked
from capsjax._options import fraction as fraction
from capsjax._options import not_negative as not_negative
from capsjax._options import one_of as one_of
from capsjax._options import positive as positive

# At 1 / 1024 even the widest layers (1024 channels) have one channel: less would change nothing.
LEAST_WIDTH = 2.0**-10


def scalable(default: Any) -> Any:
    """Returns a field for positive numbers of channels, capsules or units, scaled by `width`."""
    return field(default=default, metadata={**positive(default).metadata, "scaled": True})


def scaled(number: Any, width: float) -> Any:
    """Returns a number of channels, or each of a tuple, times `width`: at least 1."""
    if isinstance(number, tuple):
        return tuple(scaled(each, width) for each in number)
    return max(1, round(number * width))


@dataclass(frozen=True)
class Config(Options):
    """Options of a network; raises ValueError for a value that a field does not allow.

    Attributes:
      width: multiplies the number of channels, capsules and hidden units below the classes.
    """

    # The options that have an entry for each layer: their lengths must be equal.
    PER_LAYER: ClassVar[tuple[str, ...]] = ()

    width: float = checked(1.0, lambda w: w >= LEAST_WIDTH, f"must be at least {LEAST_WIDTH}")

    def __post_init__(self) -> None:
        super().__post_init__()
        values = [getattr(self, name) for name in self.PER_LAYER]
        if len({len(value) for value in values}) > 1 or () in values:
            names = " and ".join(self.PER_LAYER)
            raise ValueError(f"{names} must have one number for each layer, got {values}")

    def narrowed(self) -> "Config":
        """Returns the options with every field of `scalable` multiplied by `width`."""
        names = [option.name for option in fields(self) if "scaled" in option.metadata]
        return replace(self, **{name: scaled(getattr(self, name), self.width) for name in names})


@dataclass(frozen=True)
class Normalization(Config):
    """Options of networks whose recipe normalises images.

    They are part of the network, so that all use of it normalises images as training did.

    Attributes:
      mean: one number per channel, of images in [0, 1]; () for no normalisation.
      std: one positive number per channel; () for no normalisation.
    """

    mean: tuple[float, ...] = checked((), lambda _: True, "must be finite", example=(1.0,))
    std: tuple[float, ...] = checked((), lambda s: s > 0, "must be positive", example=(1.0,))
