"""Options of networks: frozen dataclasses that check the values of their fields."""

from dataclasses import dataclass

from capsjax._options import Options, checked, fraction, not_negative, one_of, positive

__all__ = [
    "Config",
    "Normalization",
    "check_lengths",
    "fraction",
    "not_negative",
    "one_of",
    "positive",
    "scaled",
]

# Below 1 / 1024, of the widest layers, all layers are one channel wide whatever the value.
LEAST_WIDTH = 2.0**-10


def scaled(channels: int, width: float) -> int:
    """Returns `channels` times the multiplier `width`, at least 1."""
    return max(1, round(channels * width))


def check_lengths(**options: tuple) -> None:
    """Raises ValueError unless all `options` have the same number of entries, one or more."""
    lengths = {len(values) for values in options.values()}
    if len(lengths) > 1 or 0 in lengths:
        values = " and ".join(map(str, options.values()))
        raise ValueError(
            f"{' and '.join(options)} must have one number for each layer, got {values}"
        )


@dataclass(frozen=True)
class Config(Options):
    """Options of a network; raises ValueError for a value that a field does not allow.

    Attributes:
      width: for small machines: multiplies the number of channels, capsules and hidden units of
        every layer below the classes, but not the sizes of poses and kernels.
    """

    width: float = checked(1.0, lambda w: w >= LEAST_WIDTH, f"must be at least {LEAST_WIDTH}")


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
