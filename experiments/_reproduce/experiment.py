"""What an experiment is: named variants of a config, a measurement, published values. Data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from _reproduce.compare import Comparison
    from _reproduce.measures import Finished

# Values of a config by dotted key; a whole section (`optimizer`, `schedule`) is a dict of its
# options with its `name`.
Overrides = Mapping[str, Any]


SCALES = ("smoke", "small", "full")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Measured(NamedTuple):
    """What was measured on one trained network.

    Attributes:
      metrics: numbers by name; the same in every run with the same seed.
      series: lists of numbers by name, for curves.
      times: seconds by name: these differ from run to run.
      arrays: by name, for pictures.
    """

    metrics: Mapping[str, float]
    series: Mapping[str, list[float]] = NOTHING
    times: Mapping[str, float] = NOTHING
    arrays: "Mapping[str, np.ndarray]" = NOTHING


@dataclass(frozen=True)
class Variant:
    """One row of a table, or one line of a figure.

    Attributes:
      overrides: what differs from the experiment's recipe.
      at: by scale, further ones, which go before all others.
      pretrained: what is trained first, as overrides; with another seed the run then begins with
        its layers (`init_layers` in `overrides`; Lin et al. 2018, transfer).
      members: so many networks are trained, with different seeds, and measured as one ensemble.
      line, x: where it stands in a figure of lines: its line and its place on the x axis.
    """

    overrides: Overrides = field(default_factory=dict)
    at: Mapping[str, Overrides] = field(default_factory=dict)
    pretrained: Overrides | None = None
    members: int = 1
    line: str = ""
    x: float = 0.0


@dataclass(frozen=True)
class Scale:
    """How large an experiment is run.

    Attributes:
      about: what is smaller than in the paper, for people.
      overrides: the same as values of the config; they go before the recipe's.
      seeds: runs of each variant, seeds 0, 1, ….
      images: of the test set that a measurement other than accuracy looks at, the first ones.
      only: the variants of this scale, () for all.
    """

    about: str
    overrides: Overrides = field(default_factory=dict)
    seeds: int = 1
    images: int = 10_000
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Published:
    """A printed number and, where there is one, its standard deviation over `runs` runs."""

    mean: float
    std: float | None = None
    runs: int = 1


@dataclass(frozen=True)
class Column:
    """A measured number beside what the paper prints.

    Attributes:
      metric: its name in `Measured.metrics`.
      title: for people, with the unit.
      published: by variant.
      digits: after the point.
      tolerance: how far from a number that is printed without deviation counts as the same.
    """

    metric: str
    title: str
    published: Mapping[str, float | Published] = field(default_factory=dict)
    digits: int = 2
    tolerance: float = 1.0

    def of(self, variant: str) -> Published | None:
        """What is printed for `variant`."""
        value = self.published.get(variant)
        return Published(value) if isinstance(value, int | float) else value


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: in `metric`, `more` has a higher number than `less`.

    `less` is another variant, or a number.
    """

    text: str
    metric: str
    more: str
    less: str | float

    def __post_init__(self):
        if not isinstance(self.less, str | float):
            raise TypeError(f"less must be a variant or a float, got {self.less!r}")


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
      title: what the paper calls it.
      recipe: of the paper, what differs from `capsjax.training.config.default`; with `model.name`
        and `data.name`, unless every variant has its own.
      variants: by name, in the paper's order.
      measure: of a finished run.
      columns: what the table shows.
      claims: what the paper concludes from it.
      scales: by name: "smoke", "small", "full".
      figure: draws it in the paper's form.
      notes: what was chosen where the paper is silent.
    """

    title: str
    recipe: Overrides
    variants: Mapping[str, Variant]
    measure: "Callable[[Finished], Measured]"
    columns: tuple[Column, ...]
    scales: Mapping[str, Scale]
    claims: tuple[Claim, ...] = ()
    figure: "Callable[[Comparison], Figure] | None" = None
    notes: str = ""

    def at(self, scale: str) -> dict[str, Variant]:
        """The variants of a scale."""
        only = self.scales[scale].only
        return {name: v for name, v in self.variants.items() if not only or name in only}
