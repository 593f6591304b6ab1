"""What the page of a name says, as blocks, and these as Markdown."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from _reproduce.compare import Comparison, Row, Values, kendall
from _reproduce.experiment import Column, Published
from _reproduce.recipes import recipe_key

MEANINGLESS = "This run proves the path only. Its numbers mean nothing."


class Table(NamedTuple):
    """A table; `align` has "l" or "r" for each of its columns."""

    title: str
    align: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Items(NamedTuple):
    """A list."""

    title: str
    lines: Sequence[str]


def page(comparison: Comparison) -> str:
    """The page of a name, as Markdown."""
    text = markdown(comparison.name, blocks(comparison))
    if comparison.experiment.figure is not None:
        text += f"\n![{comparison.experiment.title}]({comparison.stem}.png)\n"
    return text


def blocks(comparison: Comparison) -> Iterator[str | Table | Items]:
    """What there is to say of a name: what was chosen, tables, orderings, claims, what was run."""
    experiment = comparison.experiment
    yield f"{experiment.title}."
    scale = experiment.scales[comparison.scale]
    seeds = "1 seed" if scale.seeds == 1 else f"{scale.seeds} seeds"
    yield f"Scale {comparison.scale}, {seeds} planned. {scale.about}"
    if comparison.scale == "smoke":
        yield MEANINGLESS
    notes = [f"chosen: {text}" for text in experiment.chosen]
    notes += [f"different: {text}" for text in experiment.different]
    if notes:
        yield Items("Chosen here, or different from the paper", notes)
    for column in experiment.columns:
        found = comparison.rows[column.metric]
        rows = [[variant, *_cells(row, column)] for variant, row in found.items()]
        rows += [
            [f"{name} (quoted by the paper)", "–", "0", f"{value:.{column.digits}f}", "–", "–"]
            for name, value in column.quoted.items()
        ]
        heads = ("", "ours", "n", "published", "difference", "verdict")
        yield Table(column.title, "lrrrrl", heads, rows)
        if comparison.scale != "smoke" and len(column.published) > 1:
            yield _ordering(kendall(found.values()))
    if comparison.scale != "smoke":
        yield from claims(comparison)
    yield Items("Runs", list(_about_runs(comparison)))
    if comparison.left:
        yield Items("Kept apart", comparison.left)


def claims(comparison: Comparison) -> Iterator[Table | Items]:
    """The verdict on each claim, and why others have none."""
    experiment = comparison.experiment
    digits = {column.metric: column.digits for column in experiment.columns}
    rows = [
        [v.claim.text, v.said, _signed(v.difference, digits[v.claim.metric])]
        for v in comparison.verdicts
    ]
    if rows:
        yield Table("Claims", "llr", ("claim", "verdict", "difference"), rows)
    if experiment.untested:
        lines = [f"{claim}: {reason}" for claim, reason in experiment.untested.items()]
        yield Items("Claims that no rule decides", lines)


def markdown(title: str, parts: Iterable[str | Table | Items]) -> str:
    """`parts` below a title."""
    lines = [f"# {title}", ""]
    for part in parts:
        if isinstance(part, str):
            lines += [_safe(part), ""]
        elif isinstance(part, Items):
            lines += [f"## {part.title}", "", *(f"- {_safe(line)}" for line in part.lines), ""]
        else:
            lines += [f"## {part.title}", "", *_table(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def index(comparisons: Sequence[Comparison], earlier: str = "") -> str:
    """All names as a page beside those of `markdown`.

    Args:
      comparisons: of every name, those that were not run too.
      earlier: the page of before; of names that were not run here its lines stay.
    """
    written = {name: line for line, name in re.findall(r"^(\| \[(.+?)\]\(.*)$", earlier, re.M)}
    rows = [(_link(one), one.experiment.title, one.summary) for one in comparisons]
    lines = _table(Table("", "lll", ("name", "what", "claims"), rows))
    for i, one in enumerate(comparisons, start=2):
        if not one.has_page:
            lines[i] = written.get(one.name, lines[i])
    run = sum("](" in line and "results kept apart only" not in line for line in lines)
    head = f"# Tables and figures at scale {comparisons[0].scale}\n\n"
    return head + f"{run} of {len(comparisons)} were run.\n\n" + "\n".join(lines) + "\n"


def _link(comparison: Comparison) -> str:
    name = comparison.name
    return f"[{name}]({comparison.stem}.md)" if comparison.has_page else name


def _table(table: Table) -> list[str]:
    rules = ["---:" if side == "r" else "---" for side in table.align]
    return [
        f"| {' | '.join(table.heads)} |".replace("|  |", "| |"),
        f"| {' | '.join(rules)} |",
        *(f"| {' | '.join(map(_safe, row))} |" for row in table.rows),
    ]


def _cells(row: Row, column: Column) -> list[str]:
    """Ours, n, published, difference, verdict."""
    return [
        "not run" if row.ours is None else _number(row.ours, column.digits),
        str(len(row.ours.values)) if row.ours else "0",
        "–" if row.published is None else _number(row.published, column.digits),
        _signed(row.difference, column.digits),
        row.verdict or "–",
    ]


def _number(value: Values | Published, digits: int) -> str:
    """Mean ± standard deviation."""
    deviation = "" if value.std is None else f" ± {value.std:.{digits}f}"
    return f"{value.mean:.{digits}f}{deviation}"


def _signed(difference: float | None, digits: int) -> str:
    return "–" if difference is None else f"{difference:+.{digits}f}"


def _ordering(tau: tuple[float, int] | None) -> str:
    if tau is None:
        return "Ordering: fewer than two rows to compare."
    return f"Ordering against the published column: Kendall's τ = {tau[0]:+.2f} ({tau[1]} rows)."


def _about_runs(comparison: Comparison) -> Iterator[str]:
    """What was run on what; failures; what was not run."""
    records = [record for found in comparison.records.values() for record in found]
    if records:
        for what, values in {
            "Commit": {_commit(r) for r in records},
            "Device": {f"{r['device']} ({r['machine']})" for r in records},
            "Data": {_data(r["config"]) for r in records},
            "jax": {r["versions"]["jax"] for r in records},
        }.items():
            yield f"{what}: {', '.join(sorted(values))}"
        minutes = sum(r["times"]["training_seconds"] for r in records) / 60
        yield f"Training: {minutes:.1f} minutes, trainings shared with other names counted here too"
        keys = [
            f"`{recipe_key(ml_collections.ConfigDict(found[0]['config']))}` {variant}"
            for variant, found in comparison.records.items()
            if found
        ]
        yield f"Recipes: {'; '.join(keys)}"
    for record in records:
        if record["failed"]:
            yield f"{record['variant']}, seed {record['seeds'][0]}: {record['failed']}"
    if missing := [variant for variant, found in comparison.records.items() if not found]:
        yield f"Not run: {', '.join(missing)}"


def _commit(record: Mapping[str, Any]) -> str:
    trained, measured = record["commit"], record["measured_at_commit"]
    return trained if trained == measured else f"{trained} (measured at {measured})"


def _data(config: Mapping[str, Any]) -> str:
    name, source = config["data"]["name"], config["data"].get("source")
    return f"{name} from {source}" if source else name


def _safe(text: str) -> str:
    return text.replace("|", "\\|")
