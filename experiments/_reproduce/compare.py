"""Our numbers beside the published ones, and what that says, by rules that are stated here.

- A row's *order* in a column: how many of the other rows that are printed and were run lie on the
  same side of it as in the paper (by our means).
- A row's *value*, at full scale only: "same" if it differs from the printed number by at most two
  standard errors (both deviations over the root of their runs), or, where no deviation is printed,
  by at most the column's tolerance or two of our standard errors, whichever is more.
- A column's Kendall τ (scipy's τ-b) of our means against the printed numbers.
- A claim, "A is above B", holds if our means differ in that direction by more than two standard
  errors of the difference, does not hold if they do in the other, and is undecided in between. With
  one run of either there are no standard errors: then the sign decides, and the page says so. A
  claim with a slack, "A is as good as B", is judged as if A were higher by the slack.

At smoke scale nothing is compared: its networks have learned nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from _reproduce.experiment import Claim, Column, Experiment, Published


class Values(NamedTuple):
    """One number over several runs."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float | None:
        """Over the runs; None for one run."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for one run."""
        return None if self.std is None else self.std / math.sqrt(len(self.values))


class Row(NamedTuple):
    """One variant, or line, in one column.

    Attributes:
      ours: None where it was not run or has no such number.
      published: None where nothing is printed.
      order: rows on the same side as in the paper, and rows compared.
      value: "same", "higher" or "lower", at full scale.
    """

    ours: Values | None
    published: Published | None
    order: tuple[int, int] | None
    value: str | None

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
      tau: by metric, with the number of rows; None where fewer than two can be compared.
      verdicts: of the claims.
      left: records that are kept and not mixed in, a line each.
    """

    name: str
    experiment: Experiment
    scale: str
    records: Mapping[str, Sequence[Mapping[str, Any]]]
    rows: Mapping[str, Mapping[str, Row]]
    tau: Mapping[str, tuple[float, int] | None]
    verdicts: Sequence[Verdict]
    left: Sequence[str] = ()

    @property
    def stem(self) -> str:
        """The name as part of a file's."""
        return self.name.replace("/", "_")

    @property
    def was_run(self) -> bool:
        """Whether there is any record of today's recipe."""
        return any(self.records.values())

    @property
    def has_page(self) -> bool:
        """Whether there is anything to show."""
        return self.was_run or bool(self.left)

    @property
    def orderings(self) -> str:
        """Kendall's τ of each column that has one, for an index."""
        short = {c.metric: c.title.partition(",")[0] for c in self.experiment.columns}
        if len(set(short.values())) < len(short):
            short = {metric: metric for metric in short}
        found = [f"{short[metric]}: {tau[0]:+.2f}" for metric, tau in self.tau.items() if tau]
        return "; ".join(found) or "–"

    @property
    def summary(self) -> str:
        """How many claims have which verdict, for an index."""
        if not self.was_run:
            return "results kept apart only" if self.left else "not run"
        if self.scale == "smoke":
            return "the path works"
        return summary(self.verdicts)


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many claims have which verdict."""
    if not verdicts:
        return "run; nothing to decide by a rule"
    ordered = sorted(verdicts, key=lambda verdict: VERDICTS.index(verdict.verdict))
    counts = Counter(verdict.said for verdict in ordered)
    return ", ".join(f"{said}: {count}" for said, count in counts.items())


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

    def ours(variant: str | float, metric: str) -> Values | None:
        if isinstance(variant, float):
            return Values((variant, variant))  # without any deviation
        if metric in deviations:
            # All of the paper's variants, or the deviation is of something else.
            found = [ours(v, deviations[metric]) for v in lines[variant]]
            if not all(found):
                return None
            runs = zip(*(one.values for one in found), strict=False)  # type: ignore[union-attr]
            return Values(tuple(float(np.std(of_run)) for of_run in runs))
        # The times of a run are shown like what was measured on it.
        of_runs = [r["metrics"] | r["times"] for r in records.get(variant, ())]
        values = tuple(numbers[metric] for numbers in of_runs if metric in numbers)
        return Values(values) if values else None

    compared = scale != "smoke"
    rows: dict[str, dict[str, Row]] = {}
    for column in experiment.columns:
        plain = {
            variant: Row(ours(variant, column.metric), column.of(variant), None, None)
            for variant in (lines if column.deviation_of else variants)
        }
        rows[column.metric] = {
            variant: row._replace(
                order=_order(variant, plain) if compared else None,
                value=_value(row, column) if scale == "full" else None,
            )
            for variant, row in plain.items()
        }
    tau = {metric: kendall(found.values()) if compared else None for metric, found in rows.items()}
    verdicts = [
        judge(claim, ours(claim.more, claim.metric), ours(claim.less, claim.metric))
        for claim in (experiment.claims if compared else ())
    ]
    return Comparison(name, experiment, scale, records, rows, tau, verdicts, left)


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


def kendall(rows: Sequence[Row] | Any) -> tuple[float, int] | None:
    """τ-b of our means against what is printed, and the number of rows; None below two."""
    pairs = [(r.ours.mean, r.published.mean) for r in rows if r.ours and r.published]
    if len(pairs) < 2:
        return None
    tau = scipy.stats.kendalltau(*zip(*pairs, strict=True)).statistic
    # All our means are equal: no ordering.
    return None if math.isnan(tau) else (float(tau), len(pairs))


def _order(variant: str, rows: Mapping[str, Row]) -> tuple[int, int] | None:
    row = rows[variant]
    if row.ours is None or row.published is None:
        return None
    same = compared = 0
    for other_name, other in rows.items():
        if other_name == variant or other.ours is None or other.published is None:
            continue
        printed = np.sign(row.published.mean - other.published.mean)
        if printed:
            compared += 1
            same += bool(np.sign(row.ours.mean - other.ours.mean) == printed)
    return (same, compared) if compared else None


def _value(row: Row, column: Column) -> str | None:
    if row.ours is None or row.published is None:
        return None
    error = row.ours.error or 0.0
    if row.published.std is None:
        near = max(column.tolerance, 2 * error)
    else:
        near = 2 * math.hypot(error, row.published.std / math.sqrt(row.published.runs))
    difference = row.ours.mean - row.published.mean
    if abs(difference) <= near:
        return "same"
    return "higher" if difference > 0 else "lower"
