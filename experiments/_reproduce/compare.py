"""Our numbers beside the published ones, by the rules of docs/reproduce.md."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from _reproduce.experiment import Claim, Column, Experiment, Published


class Values(NamedTuple):
    """One number over several runs; there is no deviation and no error of one run."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float | None:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean."""
        return None if self.std is None else self.std / math.sqrt(len(self.values))


class Row(NamedTuple):
    """One variant, or line, in one column.

    Attributes:
      ours: None where it was not run or has no such number.
      published: None where nothing is printed.
      verdict: what the rules say of it.
    """

    ours: Values | None
    published: Published | None
    verdict: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the published number; None where either is missing."""
        if self.ours is None or self.published is None:
            return None
        return self.ours.mean - self.published.mean


VERDICTS = ("holds", "does not hold", "undecided", "not run")


class Verdict(NamedTuple):
    """What a claim came to; `verdict` is one of VERDICTS."""

    claim: Claim
    verdict: str
    difference: float | None = None
    single: bool = False

    @property
    def said(self) -> str:
        """The verdict and what it rests on."""
        return f"{self.verdict} (by sign alone)" if self.single else self.verdict


class Comparison(NamedTuple):
    """A name at a scale.

    Attributes:
      name, experiment, scale: which.
      records: of the runs, by variant, in the order of their seeds.
      rows: by metric and variant, or line where the column is a deviation over lines.
      verdicts: of the claims.
      left: records that are kept and not mixed in, a line each.
    """

    name: str
    experiment: Experiment
    scale: str
    records: Mapping[str, Sequence[Mapping[str, Any]]]
    rows: Mapping[str, Mapping[str, Row]]
    verdicts: Sequence[Verdict]
    left: Sequence[str] = ()

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
            return "results kept apart only" if self.left else "not run"
        if self.scale == "smoke":
            return "the path works"
        return summary([verdict.said for verdict in self.verdicts])


def summary(said: Sequence[str]) -> str:
    """How many claims have which verdict."""
    ordered = sorted(said, key=lambda one: VERDICTS.index(one.removesuffix(" (by sign alone)")))
    counted = [f"{one}: {count}" for one, count in Counter(ordered).items()]
    return ", ".join(counted) or "run; nothing to decide by a rule"


def compare(
    name: str,
    experiment: Experiment,
    scale: str,
    records: Mapping[str, Sequence[Mapping[str, Any]]],
    left: Sequence[str] = (),
) -> Comparison:
    """`records` (as their JSON files have them) beside the paper."""
    variants = experiment.at(scale)
    records = {variant: list(records.get(variant, ())) for variant in variants}
    lines = by_line(experiment)
    deviations = {c.metric: c.deviation_of for c in experiment.columns if c.deviation_of}

    def ours(row: str | float, metric: str) -> Values | None:
        if isinstance(row, float):
            return Values((row, row))  # without any deviation
        if metric in deviations:
            # All of the paper's variants, or the deviation is of something else.
            found = [ours(variant, deviations[metric]) for variant in lines[row]]
            runs = zip(*(one.values for one in found if one), strict=False)
            values = tuple(float(np.std(of_run)) for of_run in runs) if all(found) else ()
        else:
            # The times of a run are shown like what was measured on it.
            of_runs = [record["metrics"] | record["times"] for record in records.get(row, ())]
            values = tuple(numbers[metric] for numbers in of_runs if metric in numbers)
        return Values(values) if values else None

    rows: dict[str, dict[str, Row]] = {}
    for column in experiment.columns:
        names = lines if column.deviation_of else variants
        plain = {row: Row(ours(row, column.metric), column.of(row)) for row in names}
        rows[column.metric] = plain
        if scale != "smoke":
            rows[column.metric] = {
                name: row._replace(verdict=_verdict(row, plain.values(), column, scale))
                for name, row in plain.items()
            }
    verdicts = [
        judge(claim, ours(claim.more, claim.metric), ours(claim.less, claim.metric))
        if scale != "smoke"
        else Verdict(claim, "not run")
        for claim in experiment.claims
    ]
    return Comparison(name, experiment, scale, records, rows, verdicts, left)


def by_line(experiment: Experiment, scale: str | None = None) -> dict[str, dict[str, float]]:
    """The variants of each line, and the x of each; of all variants, or of a scale's."""
    found: dict[str, dict[str, float]] = {}
    variants = experiment.variants if scale is None else experiment.at(scale)
    for name, variant in variants.items():
        found.setdefault(variant.line, {})[name] = variant.x
    return found


def judge(claim: Claim, more: Values | None, less: Values | None) -> Verdict:
    """The rule for claims."""
    if more is None or less is None:
        return Verdict(claim, "not run")
    difference = more.mean - less.mean
    single = more.error is None or less.error is None
    near = 0.0 if single else 2 * math.hypot(more.error or 0.0, less.error or 0.0)
    above = difference + claim.slack
    verdict = "holds" if above > near else "does not hold" if above < -near else "undecided"
    return Verdict(claim, verdict, difference, single)


def kendall(rows: Iterable[Row]) -> tuple[float, int] | None:
    """τ-b of our means against what is printed, and the number of rows; None below two."""
    pairs = [(r.ours.mean, r.published.mean) for r in rows if r.ours and r.published]
    if len(pairs) < 2:
        return None
    tau = scipy.stats.kendalltau(*zip(*pairs, strict=True)).statistic
    # All our means are equal: no ordering.
    return None if math.isnan(tau) else (float(tau), len(pairs))


def _verdict(row: Row, rows: Iterable[Row], column: Column, scale: str) -> str:
    """The order of a row among others, and at full scale whether its value is the same."""
    if row.ours is None or row.published is None or row.difference is None:
        return ""
    sides = [
        (np.sign(row.ours.mean - other.ours.mean), np.sign(row.published.mean - printed.mean))
        for other in rows
        if other.ours and (printed := other.published) and printed.mean != row.published.mean
    ]
    order = f"order {sum(ours == printed for ours, printed in sides)}/{len(sides)}" if sides else ""
    if scale != "full":
        return order
    error = row.ours.error or 0.0
    near = max(column.tolerance, 2 * error)
    if row.published.std is not None:
        near = 2 * math.hypot(error, row.published.std / math.sqrt(row.published.runs))
    value = "same" if abs(row.difference) <= near else "higher" if row.difference > 0 else "lower"
    return f"{order}, {value}" if order else value
