"""What an experiment is: rows, what is measured on them, what the paper claims. Data only."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

Overrides = Mapping[str, Any]  # values of a config by dotted key
SCALES = ("smoke", "small", "medium", "full")
# Metrics that every trained network has, the last two if it routes (`measures.network`).
PARAMETERS = "parameters"
ENTROPY, SHARE = "routing entropy", "true class's share"


class Measured(NamedTuple):
    """What was measured on one network, by name."""

    metrics: Mapping[str, float]  # the same in every run with the same seed
    series: Mapping[str, list[float]] = {}  # for curves
    times: Mapping[str, float] = {}  # in seconds; these differ from run to run
    arrays: Mapping[str, np.ndarray] = {}  # for pictures


class Estimate(NamedTuple):
    """A mean over `runs` runs, ours or printed, and its standard deviation if it is known."""

    mean: float
    std: float | None = None
    runs: int = 1


class Floor(NamedTuple):
    """What a network must reach to count as trained: an error at most, anything else at least."""

    metric: str
    value: float

    def worst(self, reached: Sequence[float]) -> float:
        """Returns the worst of what several runs reached."""
        return max(reached) if self.metric == "error" else min(reached)

    def __str__(self) -> str:
        return f"at {'most' if self.metric == 'error' else 'least'} {self.value:g} %"


@dataclass(frozen=True)
class Row:
    """One row of a table or one point of a figure, with all that is known of it."""

    name: str
    config: str  # the file of configs/ with its recipe: "FILE" or "FILE:VARIANT"
    changes: Overrides = field(default_factory=dict)  # at every scale
    printed: Mapping[str, float | Estimate] = field(default_factory=dict)  # by metric
    _: KW_ONLY
    # By scale: further changes, which take precedence over all others.
    at: Mapping[str, Overrides] = field(default_factory=dict)
    # "trained", or a control: "untrained" is the same network as it is built, "pixels" takes the
    # image itself for the pose of every class and for every layer.
    network: str = "trained"
    # The config that is trained first; with another seed the row's own training then begins with
    # the layers that its config names in `init_layers` (Lin et al. 2018, transfer).
    pretrained: str = ""
    members: int = 1  # networks with different seeds, trained and measured as one ensemble
    floor: Floor | None = None  # instead of the experiment's
    line: str = ""  # its line in a figure of lines, …
    x: float = 0.0  # … and its place on the x axis


@dataclass(frozen=True)
class Scale:
    """How large an experiment is run."""

    about: str  # what is smaller than in the paper, in words
    overrides: Overrides = field(default_factory=dict)  # they take precedence over config files
    seeds: int = 3  # runs of each row, with the seeds 0, 1, …
    images: int = 10_000  # the first test images, for measurements other than accuracy
    only: tuple[str, ...] = ()  # the rows of this scale, () for all


@dataclass(frozen=True)
class Column:
    """A measured number. Neighbouring columns with the same title stand in one table."""

    metric: str  # its name in `Measured.metrics`
    title: str  # of the table, with the unit
    head: str = ""  # of the column, where its table has several
    best: float = 0.0  # of a network without error: 100 for an accuracy in per cent
    digits: int = 2  # after the point
    quoted: Mapping[str, float] = field(default_factory=dict)  # by the paper, from others; by name
    # From a `Comparison`, its values by row, or line, and seed; otherwise they are measured.
    derive: Callable[..., Mapping[str, Mapping[int, float]]] | None = None
    printed: Mapping[str, float] = field(default_factory=dict)  # of lines


@dataclass(frozen=True)
class Claim:
    """A finding of the paper: in `metric`, `more` is above `less`.

    Both are names of rows, or numbers. If `less` has several, such as a baseline and controls,
    `more` must be above each. With a `slack` the claim is "as good as": `more` may be that much
    lower.
    """

    text: str
    metric: str
    more: str | float
    less: str | float | tuple[str | float, ...]
    _: KW_ONLY
    slack: float = 0.0
    routes: str = ""  # the row whose routing it is about
    any_accuracy: bool = False  # also for networks that did not learn (if of accuracies: for less)


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    title: str  # what the paper calls it
    rows: tuple[Row, ...]  # in the paper's order, controls last
    measure: Callable[..., Measured]  # of a `FinishedRun`
    columns: tuple[Column, ...]
    scales: Mapping[str, Scale]  # by name; most have no medium one
    floor: Floor | None = None  # for trained rows without their own
    claims: tuple[Claim, ...] = ()  # what the paper concludes from it and a rule decides
    # What the paper says about it and nothing here decides, with the reason.
    untested: Mapping[str, str] = field(default_factory=dict)
    figure: Callable[..., Any] | None = None  # draws a `Comparison` in the paper's form
    chosen: tuple[str, ...] = ()  # where the paper is silent
    different: tuple[str, ...] = ()  # from the paper's words

    def column(self, metric: str) -> Column:
        """Returns the column of a metric."""
        return next(column for column in self.columns if column.metric == metric)

    def printed(self, metric: str, name: str) -> Estimate | None:
        """Returns what the paper prints of a row, or of a line in a derived column."""
        of_rows = {row.name: row.printed.get(metric) for row in self.rows}
        value = self.column(metric).printed.get(name, of_rows.get(name))
        return value if value is None or isinstance(value, Estimate) else Estimate(value)

    def at(self, scale: str) -> dict[str, Row]:
        """Returns the rows of a scale by name, with their floors; none without that scale."""
        if scale not in self.scales:
            return {}
        only = self.scales[scale].only
        rows = (replace(row, floor=row.floor or self.floor) for row in self.rows)
        return {row.name: row for row in rows if not only or row.name in only}

    def seeds(self, scale: str) -> int:
        """Returns how many runs each row has: at smoke scale one, as it only shows that it runs."""
        return 1 if scale == "smoke" else self.scales[scale].seeds


def options_first(function: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Lets the options of `function` be chosen first: f(*options)(run) is then f(run, *options)."""

    @functools.wraps(function)
    def choose(*options: Any, **named: Any) -> Callable[..., Any]:
        return lambda *subjects: function(*subjects, *options, **named)

    return choose


def claims(metric: str, *rows: tuple, **options: Any) -> tuple[Claim, ...]:
    """Claims about one metric: (text, more, less), or with the row that must have routed."""
    return tuple(
        Claim(text, metric, more, less, routes="".join(routes), **options)
        for text, more, less, *routes in rows
    )


def columns(title: str, heads: Mapping[str, str], **options: Any) -> tuple[Column, ...]:
    """Returns the columns of one table, with the head of each by its metric."""
    return tuple(Column(metric, title, head, **options) for metric, head in heads.items())
