"""What an experiment is: rows that name a config, a measurement, published values. Data only."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from _reproduce.compare import Comparison
    from _reproduce.measures import FinishedRun

Overrides = Mapping[str, Any]  # values of a config by dotted key
SCALES = ("smoke", "small", "medium", "full")


class Measured(NamedTuple):
    """What was measured on one trained network, by name."""

    metrics: Mapping[str, float]  # the same in every run with the same seed
    series: Mapping[str, list[float]] = {}  # for curves
    times: Mapping[str, float] = {}  # in seconds; these differ from run to run
    arrays: Mapping[str, np.ndarray] = {}  # for pictures


@dataclass(frozen=True)
class Variant:
    """One row of a table, or one line of a figure."""

    config: str  # the file of configs/ that has its recipe: "FILE" or "FILE:VARIANT"
    changes: Overrides = field(default_factory=dict)  # at every scale
    # By scale: further changes, which take precedence over all others.
    at: Mapping[str, Overrides] = field(default_factory=dict)
    # The config that is trained first; with another seed the run then begins with the layers that
    # its own config names in `init_layers` (Lin et al. 2018, transfer).
    pretrained: str = ""
    members: int = 1  # networks with different seeds, trained and measured as one ensemble
    line: str = ""  # its line in a figure of lines, …
    x: float = 0.0  # … and its place on the x axis


@dataclass(frozen=True)
class Scale:
    """How large an experiment is run."""

    about: str  # what is smaller than in the paper, in words
    # The same as values of the config; they take precedence over the config files'.
    overrides: Overrides = field(default_factory=dict)
    seeds: int = 1  # runs of each variant, with the seeds 0, 1, …
    images: int = 10_000  # the first test images, for measurements other than accuracy
    only: tuple[str, ...] = ()  # the variants of this scale, () for all


class Estimate(NamedTuple):
    """A mean over `runs` runs, ours or printed, and its standard deviation where there is one."""

    mean: float
    std: float | None = None
    runs: int = 1

    @property
    def error(self) -> float | None:
        """The standard error of the mean."""
        return None if self.std is None else self.std / math.sqrt(self.runs)


@dataclass(frozen=True)
class Column:
    """A measured number beside what the paper prints."""

    metric: str  # its name in `Measured.metrics`
    title: str  # for people, with the unit
    published: Mapping[str, float | Estimate] = field(default_factory=dict)  # by variant
    # By name: what the paper quotes from others; nothing of it is run here.
    quoted: Mapping[str, float] = field(default_factory=dict)
    # In a column with a row for each `Variant.line`: the metric whose standard deviation (over n,
    # not n − 1) over the line's variants it shows.
    deviation_of: str = ""
    digits: int = 2  # after the point
    tolerance: float = 1.0  # from a number printed without deviation, to count as the same

    def printed(self, variant: str) -> Estimate | None:
        """What the paper has for `variant`."""
        value = self.published.get(variant)
        return Estimate(value) if isinstance(value, int | float) else value


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


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    title: str  # what the paper calls it
    variants: Mapping[str, Variant]  # by name, in the paper's order
    measure: "Callable[[FinishedRun], Measured]"
    columns: tuple[Column, ...]
    scales: Mapping[str, Scale]  # by name, of SCALES; some have no medium one
    claims: tuple[Claim, ...] = ()  # what the paper concludes from it and a rule decides
    # What the paper says about it and nothing here decides, with the reason.
    untested: Mapping[str, str] = field(default_factory=dict)
    figure: "Callable[[Comparison], Figure] | None" = None  # draws it in the paper's form
    chosen: tuple[str, ...] = ()  # where the paper is silent
    different: tuple[str, ...] = ()  # from the paper's words

    def column(self, metric: str) -> Column:
        """The column of a metric."""
        return next(column for column in self.columns if column.metric == metric)

    def at(self, scale: str) -> dict[str, Variant]:
        """The variants of a scale."""
        if scale not in self.scales:
            return {}
        only = self.scales[scale].only
        return {name: v for name, v in self.variants.items() if not only or name in only}
