"""Our numbers beside the published ones, by the rules of docs/reproduce.md."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from _reproduce.experiment import Claim, Column, Estimate, Experiment


class Row(NamedTuple):
    """One variant, or line, in one column."""

    ours: Estimate | None  # None where it was not run or has no such number
    published: Estimate | None  # None where nothing is printed
    verdict: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the published number; None where either is missing."""
        if self.ours is None or self.published is None:
            return None
        return self.ours.mean - self.published.mean


VERDICTS = ("holds", "does not hold", "undecided", "not run")
BY_SIGN = " (by sign alone)"


class Verdict(NamedTuple):
    """What a claim came to."""

    claim: Claim
    verdict: str  # one of VERDICTS, with BY_SIGN where a row has one run
    difference: float | None = None
    # Two standard errors of the difference: what could be told from none. None after one run.
    near: float | None = None


class Ordering(NamedTuple):
    """How far our order of a column's rows is the printed one."""

    tau: float  # Kendall's τ-b of our means
    rows: int
    # Nine tenths of τ if each mean is drawn around ours with its standard error; None where a row
    # has one run.
    interval: tuple[float, float] | None = None


class Comparison(NamedTuple):
    """A name at a scale."""

    name: str
    experiment: Experiment
    scale: str
    records: Mapping[str, Sequence[Mapping[str, Any]]]  # by variant, in the order of their seeds
    # By metric and variant, or line where the column is a deviation over lines.
    rows: Mapping[str, Mapping[str, Row]]
    verdicts: Sequence[Verdict]
    left: Sequence[str] = ()  # records that are kept and not mixed in, a line each

    @property
    def stem(self) -> str:
        """The name as part of a file's."""
        return self.name.replace("/", "_")

    @property
    def has_page(self) -> bool:
        """Whether there is anything to show."""
        return any(self.records.values()) or bool(self.left)

    @property
    def summary(self) -> str:
        """How many claims have which verdict, for an index."""
        if not any(self.records.values()):
            not_run = f"not run: {len(self.verdicts)}" if self.verdicts else "not run"
            return "results kept apart only" if self.left else not_run
        if self.scale == "smoke":
            return "the path works"
        return summary([verdict.verdict for verdict in self.verdicts])

    @property
    def power(self) -> str:
        """For how many claims a difference as large as the published one would stand out here.

        Of those with several runs of both rows, and with published numbers; "–" if there are none.
        """
        means = {
            metric: {name: row.ours.mean for name, row in rows.items() if row.ours}
            for metric, rows in self.rows.items()
        }
        return power(self.experiment, self.verdicts, means)


def summary(verdicts: Sequence[str]) -> str:
    """How many claims have which verdict."""
    ordered = sorted(verdicts, key=lambda one: VERDICTS.index(one.removesuffix(BY_SIGN)))
    counted = [f"{one}: {count}" for one, count in Counter(ordered).items()]
    return ", ".join(counted) or "run; nothing to decide by a rule"


def power(
    experiment: Experiment, verdicts: Iterable[Verdict], ours: Mapping[str, Mapping[str, float]]
) -> str:
    """See `Comparison.power`; `ours` are the means by metric and row."""
    found = []
    for verdict in verdicts:
        claim = verdict.claim
        if verdict.near is None or not isinstance(claim.less, str):
            continue
        column, rows = experiment.column(claim.metric), (claim.more, claim.less)
        printed = [one.mean for row in rows if (one := column.printed(row)) is not None]
        if len(printed) == 2:
            scale = abs(sum(ours[claim.metric][row] for row in rows) / sum(printed))
            found.append(abs(printed[0] - printed[1]) * scale > verdict.near)
    return f"{sum(found)} of {len(found)}" if found else "–"


def compare(
    name: str,
    experiment: Experiment,
    scale: str,
    records: Mapping[str, Sequence[Mapping[str, Any]]],
    left: Sequence[str] = (),
) -> Comparison:
    """`records` (as their JSON files have them) beside the paper; smoke decides nothing."""
    lines = by_line(experiment)
    deviations = {c.metric: c.deviation_of for c in experiment.columns if c.deviation_of}

    def values(row: str, metric: str) -> list[float]:
        """A number for each run."""
        if metric in deviations:
            # All of the paper's variants, or the deviation is of something else.
            found = [values(variant, deviations[metric]) for variant in lines[row]]
            return [float(np.std(of_run)) for of_run in zip(*found, strict=False)]
        # The times of a run are shown like what was measured on it.
        done = [record for record in records.get(row, ()) if not record["failed"]]
        runs = [record["metrics"] | record["times"] for record in done]
        return [numbers[metric] for numbers in runs if metric in numbers]

    def verdict(claim: Claim) -> Verdict:
        if scale == "smoke":
            return Verdict(claim, "not run")
        more = estimate(values(claim.more, claim.metric))
        if isinstance(claim.less, str):
            return judge(claim, more, estimate(values(claim.less, claim.metric)))
        return judge(claim, more, Estimate(claim.less, std=0.0))

    rows = {}
    for column in experiment.columns:
        plain = {
            name: Row(estimate(values(name, column.metric)), column.printed(name))
            for name in (lines if column.deviation_of else experiment.at(scale))
        }
        rows[column.metric] = {
            name: row._replace(verdict=_verdict(row, plain.values(), column, scale))
            for name, row in plain.items()
        }
    verdicts = [verdict(claim) for claim in experiment.claims]
    records = {variant: list(records.get(variant, ())) for variant in experiment.at(scale)}
    return Comparison(name, experiment, scale, records, rows, verdicts, left)


def estimate(values: Sequence[float]) -> Estimate | None:
    """Their mean; None if there are none. One run has no deviation."""
    if not values:
        return None
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Estimate(float(np.mean(values)), std, len(values))


def by_line(experiment: Experiment, scale: str | None = None) -> dict[str, dict[str, float]]:
    """The variants of each line, and the x of each; of all variants, or of a scale's."""
    found: dict[str, dict[str, float]] = {}
    variants = experiment.variants if scale is None else experiment.at(scale)
    for name, variant in variants.items():
        found.setdefault(variant.line, {})[name] = variant.x
    return found


def judge(claim: Claim, more: Estimate | None, less: Estimate | None) -> Verdict:
    """The rule for claims."""
    if more is None or less is None:
        return Verdict(claim, "not run")
    difference = more.mean - less.mean
    above = difference + claim.slack
    by_sign = more.error is None or less.error is None
    near = None if by_sign else 2 * math.hypot(more.error, less.error)
    apart = near or 0.0
    verdict = "holds" if above > apart else "does not hold" if above < -apart else "undecided"
    return Verdict(claim, verdict + by_sign * BY_SIGN, difference, near)


def kendall(rows: Iterable[Row]) -> Ordering | None:
    """Our means against what is printed; None below two rows, or where one side is all equal."""
    pairs = [(row.ours, row.published.mean) for row in rows if row.ours and row.published]
    if len(pairs) < 2:
        return None
    ours, printed = zip(*pairs, strict=True)
    means, errors = [one.mean for one in ours], [one.error for one in ours]
    tau = scipy.stats.kendalltau(means, printed).statistic
    if math.isnan(tau):
        return None
    if None in errors:
        return Ordering(float(tau), len(pairs))
    draws = np.random.default_rng(0).normal(means, errors, (1000, len(pairs)))
    taus = [scipy.stats.kendalltau(draw, printed).statistic for draw in draws]
    low, high = np.quantile(taus, [0.05, 0.95])
    return Ordering(float(tau), len(pairs), (float(low), float(high)))


def _verdict(row: Row, rows: Iterable[Row], column: Column, scale: str) -> str:
    """The order of a row among others, and at full scale whether its value is the same."""
    if row.difference is None or scale == "smoke":
        return ""
    sides = [
        (np.sign(row.ours.mean - other.ours.mean), np.sign(row.published.mean - printed.mean))
        for other in rows
        if other.ours and (printed := other.published) and printed.mean != row.published.mean
    ]
    order = f"order {sum(ours == printed for ours, printed in sides)}/{len(sides)}" if sides else ""
    if scale != "full":
        return order
    ours, printed = row.ours.error, row.published.error
    if ours is None or printed is None:  # one of them is of a single run
        near = max(column.tolerance, 2 * (ours or printed or 0.0))
    else:
        near = 2 * math.hypot(ours, printed)
    value = "same" if abs(row.difference) <= near else "higher" if row.difference > 0 else "lower"
    return f"{order}, {value}" if order else value
