"""What an experiment is: rows that name a config, a measurement, published values. Data only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from _reproduce.compare import Comparison
    from _reproduce.measures import Finished

# Values of a config by dotted key.
Overrides = Mapping[str, Any]

SCALES = ("smoke", "small", "full")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Measured(NamedTuple):
    """What was measured on one trained network.

    Attributes:
      metrics: numbers by name; the same in every run with the same seed.
      series: lists of numbers by name, for curves.
      times: seconds by name; these differ from run to run.
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
      config: the file of configs/ that has its recipe: "FILE" or "FILE:VARIANT".
      changes: what the row changes in it, at every scale.
      at: by scale, further changes, which take precedence over all others.
      pretrained: the config that is trained first; with another seed the run then begins with the
        layers that its own config names in `init_layers` (Lin et al. 2018, transfer).
      members: how many networks, with different seeds, are trained and measured as one ensemble.
      line, x: where it stands in a figure of lines: its line and its place on the x axis.
    """

    config: str
    changes: Overrides = field(default_factory=dict)
    at: Mapping[str, Overrides] = field(default_factory=dict)
    pretrained: str = ""
    members: int = 1
    line: str = ""
    x: float = 0.0


@dataclass(frozen=True)
class Scale:
    """How large an experiment is run.

    Attributes:
      about: what is smaller than in the paper, in words.
      overrides: the same as values of the config; they take precedence over the config files'.
      seeds: runs of each variant, seeds 0, 1, ….
      images: how many test images a measurement other than accuracy looks at, the first ones.
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
      quoted: by name, what the paper quotes from others; nothing of it is run here.
      deviation_of: for a column with a row for each `Variant.line`: its number is the standard
        deviation (over n, not n − 1) of this other metric over the line's variants.
      digits: after the point.
      tolerance: how far from a number that is printed without deviation counts as the same.
    """

    metric: str
    title: str
    published: Mapping[str, float | Published] = field(default_factory=dict)
    quoted: Mapping[str, float] = field(default_factory=dict)
    deviation_of: str = ""
    digits: int = 2
    tolerance: float = 1.0

    def of(self, variant: str) -> Published | None:
        """What is printed for `variant`."""
        value = self.published.get(variant)
        return Published(value) if isinstance(value, int | float) else value


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: in `metric`, `more` has a higher number than `less`.

    `less` is another variant, or a number. With a `slack` the claim is "as good as": `more` may be
    that much lower.
    """

    text: str
    metric: str
    more: str
    less: str | float
    slack: float = 0.0

    def __post_init__(self):
        if not isinstance(self.less, str | float):
            raise TypeError(f"less must be a variant or a float, got {self.less!r}")


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
      title: what the paper calls it.
      variants: by name, in the paper's order.
      measure: of a finished run.
      columns: what the table shows.
      scales: by name: "smoke", "small", "full".
      claims: what the paper concludes from it and a rule decides.
      untested: what the paper says about it and nothing here decides, with the reason.
      figure: draws it in the paper's form.
      chosen: what was chosen where the paper is silent.
      different: what departs from the paper's words.
    """

    title: str
    variants: Mapping[str, Variant]
    measure: "Callable[[Finished], Measured]"
    columns: tuple[Column, ...]
    scales: Mapping[str, Scale]
    claims: tuple[Claim, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)
    figure: "Callable[[Comparison], Figure] | None" = None
    chosen: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    def at(self, scale: str) -> dict[str, Variant]:
        """The variants of a scale."""
        only = self.scales[scale].only
        return {name: v for name, v in self.variants.items() if not only or name in only}
