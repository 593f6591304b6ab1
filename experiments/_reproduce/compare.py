"""Our numbers beside the published ones, by the rules of docs/reproduce.md."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from _reproduce.experiment import ENTROPY, Claim, Estimate, Experiment, Row, options_first

LEVEL = 0.05  # of every test
FEWEST = 3  # runs of a row that a claim is decided with
ROUTED = 95.0  # a network has routed if the entropy of its couplings is at most these per cent
SEEN = 1.5  # times half of the 95 % interval: so large a difference is found in 3 of 4 cases

# What a claim comes to. The first three are by a test.
HOLDS, FAILS, CHANCE = "holds", "does not hold", "within chance"
UNDECIDED, NOT_RUN = "not decided", "not run"
DECIDED = (HOLDS, FAILS, CHANCE)
VERDICTS = (*DECIDED, UNDECIDED, NOT_RUN)


class Cell(NamedTuple):
    """One row, or line, in one column; false if it is empty."""

    ours: Estimate | None  # None if it was not run or has no such number
    printed: Estimate | None  # None if nothing is printed

    def __bool__(self) -> bool:
        return self != (None, None)


class Difference(NamedTuple):
    """How far the values of one row are above those of another, or above a number."""

    mean: float
    low: float  # of its 95 % interval
    high: float
    p: float  # two-sided: Welch's, Student's against a number; k times if one of k refutes


class Verdict(NamedTuple):
    """What a claim came to."""

    claim: Claim  # the claim
    verdict: str  # one of `VERDICTS`
    reason: str = ""  # why nothing was decided, if nothing was
    against: str | float = ""  # what `difference` is to: of several, the hardest to be above
    difference: Difference | None = None  # of the rows, with the claim's slack; None without a test
    runs: tuple[int, ...] = ()  # of each row that was tested
    # whether a difference as large as the paper's, relative to the error, would have been told from
    # chance; None if nothing is printed
    seen: bool | None = None


@dataclass(frozen=True)
class Comparison:
    """A name at a scale; smoke decides nothing."""

    name: str
    experiment: Experiment
    scale: str
    # As their JSON files have them, by row, in the order of their seeds.
    records: Mapping[str, Sequence[Mapping[str, Any]]]
    left: Sequence[str] = ()  # records that are kept and not mixed in, a line each

    @property
    def stem(self) -> str:
        """The name as part of a file's."""
        return self.name.replace("/", "_")

    @property
    def was_run(self) -> bool:
        """Whether there is a record of today's recipe."""
        return any(self.records.values())

    @cached_property
    def rows(self) -> dict[str, Row]:
        return self.experiment.at(self.scale)

    @cached_property
    def diverged(self) -> Counter[str]:
        """How many runs of each row did."""
        every = self.records.items()
        return Counter(name for name, records in every for r in records if r["failed"])

    @cached_property
    def lines(self) -> dict[str, dict[str, float]]:
        """The x of each trained row, by line and name."""
        lines: dict[str, dict[str, float]] = {}
        for row in self.rows.values():
            if row.network == "trained":
                lines.setdefault(row.line, {})[row.name] = row.x
        return lines

    def values(self, row: str, metric: str) -> Mapping[int, float]:
        """Returns a number for each seed of a row, or of a line."""
        for column in self.experiment.columns:
            if column.metric == metric and column.derive is not None:
                return column.derive(self).get(row, {})
        # The times of a run are shown like what was measured on it.
        done = [record for record in self.records.get(row, ()) if not record["failed"]]
        runs = {record["seeds"][0]: record["metrics"] | record["times"] for record in done}
        return {seed: numbers[metric] for seed, numbers in runs.items() if metric in numbers}

    @cached_property
    def cells(self) -> dict[str, dict[str, Cell]]:
        """By metric and row, or line of a derived column."""
        printed, cells = self.experiment.printed, {}
        for metric, rows in ((c.metric, c.printed or self.rows) for c in self.experiment.columns):
            ours = {row: estimate([*self.values(row, metric).values()]) for row in rows}
            cells[metric] = {row: Cell(own, printed(metric, row)) for row, own in ours.items()}
        return cells

    @cached_property
    def failed(self) -> dict[str, str]:
        """The trained rows that did not learn, each with what its worst run reached."""
        reached = {name: self._too_little(row) for name, row in self.rows.items()}
        return {name: what for name, what in reached.items() if what}

    def _too_little(self, row: Row) -> str:
        floor, records = row.floor, self.records[row.name]
        if floor is None or row.network != "trained" or not records:
            return ""
        if row.name in self.diverged:
            return f"{self.diverged[row.name]} of {len(records)} runs diverged"
        reached = [record["metrics"][floor.metric] for record in records]
        worst = floor.worst(reached)
        # As bad as the floor itself is enough.
        return "" if floor.worst([worst, floor.value]) == floor.value else f"{worst:.1f}"

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """On each claim."""
        if self.scale == "smoke":
            return [Verdict(claim, NOT_RUN) for claim in self.experiment.claims]
        return [self._judge(claim) for claim in self.experiment.claims]

    def _judge(self, claim: Claim) -> Verdict:
        less = claim.less if isinstance(claim.less, tuple) else (claim.less,)
        sides = [side for side in (claim.more, *less) if isinstance(side, str)]
        ours = {side: np.array([*self.values(side, claim.metric).values()]) for side in sides}
        if missing := [f"“{side}”" for side, values in ours.items() if not len(values)]:
            said = f"without {', '.join(missing)}" if len(missing) < len(ours) else ""
            return Verdict(claim, NOT_RUN, said)
        # Raw pixels have no seeds: a number.
        pixels = {row.name for row in self.rows.values() if row.network == "pixels"}
        few = [s for s in sides if s not in pixels and len(ours[s]) < FEWEST]
        counts = ", ".join(f"{len(ours[side])} of “{side}”" for side in few)
        reason = self._untrained(claim, sides)
        if reason or few:
            return Verdict(claim, UNDECIDED, reason or f"fewer than {FEWEST} runs: {counts}")

        def sample(side: str | float) -> np.ndarray | float:
            if not isinstance(side, str):
                return float(side)
            return float(ours[side][0]) if side in pixels else ours[side]

        tests = {name: difference(sample(claim.more) + claim.slack, sample(name)) for name in less}
        # All must hold, but one of k refutes the claim: its p counts k times (Bonferroni).
        tests |= {n: t._replace(p=min(1, len(less) * t.p)) for n, t in tests.items() if t.mean < 0}
        # The hardest one is shown.
        verdicts = {decide(result) for result in tests.values()}
        verdict = next((v for v in (FAILS, CHANCE) if v in verdicts), HOLDS)
        # If all hold, the largest p is that of the claim.
        alike = [name for name, result in tests.items() if decide(result) == verdict]
        order = {n: -tests[n].p if verdict == HOLDS else tests[n].low for n in alike}
        against = min(order, key=lambda name: order[name])
        tested = [s for s in (claim.more, against) if isinstance(s, str) and s not in pixels]
        runs = tuple(len(ours[side]) for side in tested)
        if reason := self._unrouted(claim):
            return Verdict(claim, UNDECIDED, reason, against, tests[against], runs)
        seen = self._seen(claim, against, tests[against])
        return Verdict(claim, verdict, "", against, tests[against], runs, seen)

    def _untrained(self, claim: Claim, sides: Sequence[str]) -> str:
        """Says which network of a claim did not learn; "" if all did."""
        concerned = sides
        if self.experiment.column(claim.metric).derive is not None:
            lines = self.lines.items()
            concerned = [row for line, of in lines if {line, *of} & set(sides) for row in of]
        if claim.any_accuracy:  # what does better in the accuracy itself has learned all the same
            better = [self.rows[side] for side in sides if side == claim.more and side in self.rows]
            concerned = [r.name for r in better if r.floor and r.floor.metric == claim.metric]
        for name in concerned:
            if name in self.failed:
                required = self.rows[name].floor
                return f"“{name}” did not learn ({self.failed[name]}; required: {required})"
        return ""

    def _unrouted(self, claim: Claim) -> str:
        """Says if a claim about routing is about a network that did not route; "" if it did."""
        entropies = [*self.values(claim.routes, ENTROPY).values()]
        if claim.routes and not entropies:
            return f"whether “{claim.routes}” routed was not measured"
        if entropies and max(entropies) > ROUTED:
            return (
                f"“{claim.routes}” did not route (its couplings have {max(entropies):.1f} % of the "
                "entropy of equal ones)"
            )
        return ""

    def _seen(self, claim: Claim, against: str | float, result: Difference) -> bool | None:
        """Tells whether a difference like the paper's, relative to the error, would be found."""
        cells, best = self.cells[claim.metric], self.experiment.column(claim.metric).best
        pair = [cells.get(side, Cell(None, None)) for side in (claim.more, against)]
        if any(cell.ours is None or cell.printed is None for cell in pair):
            return None
        ours = sum(abs(best - cell.ours.mean) for cell in pair)
        printed = sum(abs(best - cell.printed.mean) for cell in pair)
        published = pair[0].printed.mean - pair[1].printed.mean
        half = (result.high - result.low) / 2
        return bool(published / printed * ours + claim.slack > SEEN * half)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Averages the values; None if there are none. One run has no deviation."""
    if not values:
        return None
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Estimate(float(np.mean(values)), std, len(values))


def deviation(comparison: Comparison) -> dict[str, dict[int, float]]:
    """Derives, for each line, the standard deviation of accuracy over its rows (divided by n)."""
    deviations = {}
    for line, names in comparison.lines.items():
        rows = [comparison.values(name, "accuracy") for name in names]
        common = sorted(set.intersection(*map(set, rows)))
        deviations[line] = {seed: float(np.std([row[seed] for row in rows])) for seed in common}
    return deviations


@options_first
def drop(
    comparison: Comparison, below: Mapping[str, str] | None = None
) -> dict[str, dict[int, float]]:
    """Derives, by row and seed, how far accuracy is below that of a row, or of its line's first."""
    first = {name: first for first, *others in comparison.lines.values() for name in others}
    drops = {}
    for name, other in (below or first).items():
        base, own = (comparison.values(row, "accuracy") for row in (other, name))
        drops[name] = {seed: base[seed] - own[seed] for seed in sorted(base.keys() & own.keys())}
    return drops


def difference(values: np.ndarray | float, other: np.ndarray | float) -> Difference:
    """Subtracts `other` from `values`: Welch's t-test for two rows, Student's for a number."""
    if isinstance(values, float):
        turned = difference(other, values)
        return Difference(-turned.mean, -turned.high, -turned.low, turned.p)
    both = [values] if isinstance(other, float) else [values, other]
    mean = float(np.mean(values) - np.mean(other))
    if all(np.ptp(row) == 0 for row in both):  # no spread to test by
        return Difference(mean, mean, mean, float(mean == 0))
    with warnings.catch_warnings():  # nearly equal values of one of two rows
        warnings.simplefilter("ignore", RuntimeWarning)
        if isinstance(other, float):
            test = scipy.stats.ttest_1samp(values, other)
            interval = test.confidence_interval(1 - LEVEL) - np.float64(other)
        else:
            test = scipy.stats.ttest_ind(values, other, equal_var=False)
            interval = np.asarray(test.confidence_interval(1 - LEVEL))
    return Difference(mean, float(interval[0]), float(interval[1]), float(test.pvalue))


def decide(difference: Difference) -> str:
    """Tells whether a difference is above 0, below, or within chance."""
    if difference.p > LEVEL:
        return CHANCE
    return HOLDS if difference.mean > 0 else FAILS


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: each to be compared with the level for all together."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1)
    return adjusted[np.argsort(order)].tolist()


def after_holm(verdicts: Sequence[Verdict]) -> list[str]:
    """Returns the verdicts on all claims of a paper, those by a test corrected for their number.

    They come in another order, and a test that stands in two tables counts once.
    """
    tests = list(dict.fromkeys(v.difference for v in verdicts if v.verdict in DECIDED))
    adjusted = zip(tests, holm([test.p for test in tests]), strict=True)
    untested = [v.verdict for v in verdicts if v.verdict not in DECIDED]
    return untested + [decide(test._replace(p=p)) for test, p in adjusted]


def best_verdicts(comparisons: Sequence[Comparison]) -> list[Verdict]:
    """Returns each claim's verdict at the largest scale that tested it, or else ran its rows."""
    run = [comparison for comparison in comparisons if comparison.was_run] or comparisons[-1:]
    every = zip(*(comparison.verdicts for comparison in run), strict=True)
    # The first of equals.
    return [max(v, key=lambda v: (v.verdict in DECIDED, v.verdict != NOT_RUN)) for v in every]
