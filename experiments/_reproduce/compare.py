"""Our numbers beside the published ones, by the rules of docs/reproduce.md."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from _reproduce.experiment import ENTROPY, Claim, Estimate, Experiment, Row, Values, options_first

LEVEL = 0.05  # of every test
FEWEST = 3  # runs of a row that a claim is decided with
UNKNOWN = "not recorded"  # what a network has reached, in records of before there was a floor
ROUTED = 95.0  # a network has routed if the entropy of its couplings is at most these per cent

# What a claim comes to. The first three are by a test.
HOLDS, FAILS, CHANCE = "holds", "does not hold", "within chance"
UNDECIDED, NOT_RUN = "not decided", "not run"
VERDICTS = (HOLDS, FAILS, CHANCE, UNDECIDED, NOT_RUN)


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
    p: float  # of Welch's t-test, two-sided; of Student's against a number


class Verdict(NamedTuple):
    """What a claim came to."""

    claim: Claim  # the claim
    verdict: str  # one of `VERDICTS`
    reason: str = ""  # why nothing was decided, if nothing was
    against: str | float = ""  # what `difference` is to: of several, that which is least below
    difference: Difference | None = None  # of the rows, with the claim's slack; None without a test
    runs: tuple[int, ...] = ()  # of each row that was tested
    # whether a difference as large as the paper's, relative to the error, would have been told from
    # chance; None if nothing is printed
    seen: bool | None = None


class Comparison(NamedTuple):
    """A name at a scale."""

    name: str
    experiment: Experiment
    scale: str
    records: Mapping[str, Sequence[Mapping[str, Any]]]  # by row, in the order of their seeds
    cells: Mapping[str, Mapping[str, Cell]]  # by metric and row, or line of a derived column
    failed: Mapping[str, str]  # the trained rows that did not learn, each with what it reached
    verdicts: Sequence[Verdict]
    left: Sequence[str] = ()  # records that are kept and not mixed in, a line each

    @property
    def stem(self) -> str:
        """The name as part of a file's."""
        return self.name.replace("/", "_")

    @property
    def was_run(self) -> bool:
        """Whether there is a record of today's recipe."""
        return any(self.records.values())


def compare(
    name: str,
    experiment: Experiment,
    scale: str,
    records: Mapping[str, Sequence[Mapping[str, Any]]],
    left: Sequence[str] = (),
) -> Comparison:
    """Compares `records` (as their JSON files have them) with the paper; smoke decides nothing."""
    rows = experiment.at(scale)
    derived = {c.metric: c.derive for c in experiment.columns if c.derive is not None}

    def values(row: str, metric: str) -> Mapping[int, float]:
        """Returns a number for each seed."""
        if metric in derived:
            return derived[metric](by_line(experiment), values).get(row, {})
        # The times of a run are shown like what was measured on it.
        done = [record for record in records.get(row, ()) if not record["failed"]]
        runs = {record["seeds"][0]: record["metrics"] | record["times"] for record in done}
        return {seed: numbers[metric] for seed, numbers in runs.items() if metric in numbers}

    cells = {
        column.metric: {
            row: Cell(
                estimate([*values(row, column.metric).values()]),
                experiment.printed(column.metric, row),
            )
            for row in (column.printed or rows)
        }
        for column in experiment.columns
    }
    failed = {
        row.name: reached
        for row in rows.values()
        if (reached := _below_floor(experiment, row, records.get(row.name, ()))) is not None
    }
    verdicts = []
    for claim in experiment.claims:
        verdict = Verdict(claim, NOT_RUN)
        if scale != "smoke":
            verdict = _judge(claim, experiment, scale, values, failed)
        verdicts.append(verdict._replace(seen=_seen(verdict, experiment, cells)))
    records_by_row = {row: list(records.get(row, ())) for row in rows}
    return Comparison(name, experiment, scale, records_by_row, cells, failed, verdicts, left)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Averages the values; None if there are none. One run has no deviation."""
    if not values:
        return None
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Estimate(float(np.mean(values)), std, len(values))


def by_line(experiment: Experiment, scale: str | None = None) -> dict[str, dict[str, float]]:
    """Returns the x of each trained row by line and name; of all rows, or of a scale's."""
    lines: dict[str, dict[str, float]] = {}
    for row in experiment.rows if scale is None else experiment.at(scale).values():
        if row.network == "trained":
            lines.setdefault(row.line, {})[row.name] = row.x
    return lines


@options_first
def deviation(lines: Mapping[str, Mapping[str, float]], values: Values, metric: str) -> dict:
    """Derives, for each line, the standard deviation of `metric` over its rows (divided by n)."""
    values_by_line = {line: [values(row, metric) for row in rows] for line, rows in lines.items()}
    return {
        line: {seed: float(np.std([row[seed] for row in rows])) for seed in _common(*rows)}
        for line, rows in values_by_line.items()
    }


@options_first
def drop(lines: Mapping[str, Mapping[str, float]], values: Values, metric: str) -> dict:
    """Derives, for each row and seed, how far `metric` is below that of its line's first row."""
    drops = {}
    for first, *others in lines.values():
        base = values(first, metric)
        for row in others:
            own = values(row, metric)
            drops[row] = {seed: base[seed] - own[seed] for seed in _common(base, own)}
    return drops


def _common(*rows: Mapping[int, float]) -> list[int]:
    return sorted(set.intersection(*(set(row) for row in rows)))


def difference(values: Sequence[float], other: Sequence[float] | float) -> Difference:
    """Subtracts `other` from `values`: Welch's t-test for two rows, Student's for a number."""
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
    """Returns the verdicts on all claims of a paper, those by a test corrected for their number."""
    tested = [v for v in verdicts if v.difference is not None]
    adjusted = iter(holm([v.difference.p for v in tested if v.difference]))
    return [
        v.verdict if v.difference is None else decide(v.difference._replace(p=next(adjusted)))
        for v in verdicts
    ]


def best_verdicts(comparisons: Sequence[Comparison]) -> list[Verdict]:
    """Returns each claim's verdict at the largest scale that tested it, or else was run.

    `comparisons` has one for each scale, the largest first.
    """
    run = [comparison for comparison in comparisons if comparison.was_run] or comparisons[-1:]
    every = zip(*(comparison.verdicts for comparison in run), strict=True)
    return [next((v for v in scales if v.difference), scales[0]) for scales in every]


def _below_floor(
    experiment: Experiment, row: Row, records: Sequence[Mapping[str, Any]]
) -> str | None:
    """Returns what the worst run of a row reached if that is too little, otherwise None."""
    floor = row.floor or experiment.floor
    if floor is None or row.network != "trained" or not records:
        return None
    if any(record["failed"] for record in records):
        return "a run that diverged"
    reached = [record["metrics"].get(floor.metric) for record in records]
    if None in reached:
        return UNKNOWN
    worst = floor.worst(reached)
    # As bad as the floor itself is enough.
    return None if floor.worst([worst, floor.value]) == floor.value else f"{worst:.1f}"


def _judge(
    claim: Claim, experiment: Experiment, scale: str, values: Values, failed: Mapping[str, str]
) -> Verdict:
    less = claim.less if isinstance(claim.less, tuple) else (claim.less,)
    sides = [side for side in (claim.more, *less) if isinstance(side, str)]
    rows = experiment.at(scale)
    ours = {side: [*values(side, claim.metric).values()] for side in sides}
    if not all(ours.values()):
        missing = ", ".join(f"“{side}”" for side in sides if not ours[side])
        return Verdict(claim, NOT_RUN, f"without {missing}" if any(ours.values()) else "")

    def undecided(reason: str) -> Verdict:
        return Verdict(claim, UNDECIDED, reason)

    concerned = sides
    if experiment.column(claim.metric).derive is not None:
        lines = by_line(experiment).items()
        concerned = [row for line, of in lines if {line, *of} & set(sides) for row in of]
    for name in concerned:
        if name in failed and not claim.any_accuracy:
            if failed[name] == UNKNOWN:
                return undecided(f"it was not recorded whether “{name}” learned")
            floor = rows[name].floor or experiment.floor
            return undecided(f"“{name}” did not learn ({failed[name]}; trained: {floor})")
    if claim.routes:
        entropies = [*values(claim.routes, ENTROPY).values()]
        if not entropies:
            return undecided(f"it was not measured whether “{claim.routes}” routed")
        if max(entropies) > ROUTED:
            return undecided(
                f"“{claim.routes}” did not route (its couplings have {max(entropies):.1f} % of the "
                "entropy of equal ones)"
            )
    # Raw pixels have no seeds: a number.
    numbers = {side for side in sides if side in rows and rows[side].network == "pixels"}
    few = [side for side in sides if side not in numbers and len(ours[side]) < FEWEST]
    if few:
        counts = ", ".join(f"{len(ours[side])} of “{side}”" for side in few)
        return undecided(f"fewer than {FEWEST} runs: {counts}")

    def side(name: str | float) -> list[float] | float:
        if isinstance(name, str):
            return ours[name][0] if name in numbers else ours[name]
        return float(name)

    tests = []
    for name in less:
        more, other = side(claim.more), side(name)
        if isinstance(more, float):
            assert not isinstance(other, float)
            result = difference(other, more)
            result = Difference(-result.mean, -result.high, -result.low, result.p)
        else:
            shifted = [value + claim.slack for value in more]
            result = difference(shifted, other)
        tests.append((name, result))
    # All must hold; the hardest one is shown.
    verdicts = [decide(result) for _, result in tests]
    verdict = next((v for v in (FAILS, CHANCE) if v in verdicts), HOLDS)
    against, result = min(tests, key=lambda test: test[1].low)
    runs = [len(ours[s]) for s in (claim.more, against) if isinstance(s, str) and s not in numbers]
    return Verdict(claim, verdict, "", against, result, tuple(runs))


def _seen(
    verdict: Verdict, experiment: Experiment, cells: Mapping[str, Mapping[str, Cell]]
) -> bool | None:
    """Tells whether the paper's difference, relative to the error, is above our chance."""
    claim, result = verdict.claim, verdict.difference
    if result is None or not isinstance(claim.more, str) or not isinstance(verdict.against, str):
        return None
    column = experiment.column(claim.metric)
    pair = [cells[claim.metric].get(side) for side in (claim.more, verdict.against)]
    if any(cell is None or cell.ours is None or cell.printed is None for cell in pair):
        return None
    ours = sum(abs(column.best - cell.ours.mean) for cell in pair)
    printed = sum(abs(column.best - cell.printed.mean) for cell in pair)
    published = pair[0].printed.mean - pair[1].printed.mean
    return bool(abs(published) / printed * ours > (result.high - result.low) / 2)
