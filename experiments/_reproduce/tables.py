"""What the page of a name says, as blocks, and these as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from _reproduce.compare import Comparison, Row, Values, Verdict
from _reproduce.experiment import Column, Published
from _reproduce.recipes import recipe_key


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


def blocks(comparison: Comparison) -> Iterator[str | Table | Items]:
    """The page of a name: what was chosen, tables, orderings, claims, what was run."""
    experiment = comparison.experiment
    yield f"{experiment.title}."
    scale = experiment.scales[comparison.scale]
    seeds = "1 seed" if scale.seeds == 1 else f"{scale.seeds} seeds"
    yield f"Scale {comparison.scale}, {seeds} planned. {scale.about}"
    if comparison.scale == "smoke":
        yield "This run proves the path only. Its numbers mean nothing."
    notes = [f"chosen: {text}" for text in experiment.chosen]
    notes += [f"different: {text}" for text in experiment.different]
    if notes:
        yield Items("Chosen here, or different from the paper", notes)
    for column in experiment.columns:
        rows = [
            [variant, *_cells(row, column)]
            for variant, row in comparison.rows[column.metric].items()
        ]
        rows += [
            [f"{name} (quoted by the paper)", "–", "0", f"{value:.{column.digits}f}", "–", "–"]
            for name, value in column.quoted.items()
        ]
        heads = ("", "ours", "n", "published", "difference", "verdict")
        yield Table(column.title, "lrrrrl", heads, rows)
        if comparison.scale != "smoke" and len(column.published) > 1:
            yield _ordering(comparison, column)
    if comparison.verdicts:
        rows = [[v.claim.text, v.said, margin(comparison, v)] for v in comparison.verdicts]
        yield Table("Claims", "llr", ("claim", "verdict", "difference"), rows)
    if experiment.untested:
        lines = [f"{claim}: {reason}" for claim, reason in experiment.untested.items()]
        yield Items("Claims that no rule decides", lines)
    yield Items("Runs", _about_runs(comparison))
    if comparison.left:
        yield Items("Kept apart", comparison.left)


def markdown(comparison: Comparison) -> str:
    """The page of a name."""
    lines = [f"# {comparison.name}", ""]
    for block in blocks(comparison):
        if isinstance(block, str):
            lines += [_safe(block), ""]
            continue
        lines += [f"## {block.title}", ""]
        if isinstance(block, Items):
            lines += [f"- {_safe(line)}" for line in block.lines]
        else:
            lines += _table(block)
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def picture(comparison: Comparison) -> str:
    """The line that shows the figure of a page."""
    return f"\n![{comparison.experiment.title}]({comparison.stem}.png)\n"


def index(comparisons: Sequence[Comparison]) -> str:
    """All names, those that were not run too, as a page beside those of `markdown`."""
    run = sum(one.was_run for one in comparisons)
    rows = []
    for one in comparisons:
        name = f"[{one.name}]({one.stem}.md)" if one.has_page else one.name
        rows.append([name, one.experiment.title, one.summary, one.orderings])
    lines = [
        f"# Tables and figures at scale {comparisons[0].scale}",
        "",
        f"{run} of {len(comparisons)} were run.",
        "",
        *_table(Table("", "llll", ("name", "what", "claims", "Kendall's τ"), rows)),
    ]
    return "\n".join(lines) + "\n"


def margin(comparison: Comparison, verdict: Verdict) -> str:
    """By how much the one is above the other."""
    if verdict.difference is None:
        return "–"
    columns = {column.metric: column for column in comparison.experiment.columns}
    return f"{verdict.difference:+.{columns[verdict.claim.metric].digits}f}"


def _table(table: Table) -> list[str]:
    rules = ["---:" if side == "r" else "---" for side in table.align]
    return [
        f"| {' | '.join(table.heads)} |".replace("|  |", "| |"),
        f"| {' | '.join(rules)} |",
        *(f"| {' | '.join(map(_safe, row))} |" for row in table.rows),
    ]


def _cells(row: Row, column: Column) -> list[str]:
    """Ours, n, published, difference, verdict."""
    difference = row.difference
    verdict = [] if row.order is None else [f"order {row.order[0]}/{row.order[1]}"]
    verdict += [] if row.value is None else [row.value]
    return [
        "not run" if row.ours is None else _number(row.ours, column.digits),
        str(len(row.ours.values)) if row.ours else "0",
        "–" if row.published is None else _number(row.published, column.digits),
        "–" if difference is None else f"{difference:+.{column.digits}f}",
        ", ".join(verdict) or "–",
    ]


def _number(value: Values | Published, digits: int) -> str:
    """Mean ± standard deviation."""
    deviation = "" if value.std is None else f" ± {value.std:.{digits}f}"
    return f"{value.mean:.{digits}f}{deviation}"


def _ordering(comparison: Comparison, column: Column) -> str:
    """Kendall's τ in words."""
    found = comparison.tau[column.metric]
    if found is None:
        return "Ordering: fewer than two rows to compare."
    return (
        f"Ordering against the published column: Kendall's τ = {found[0]:+.2f} ({found[1]} rows)."
    )


def _about_runs(comparison: Comparison) -> list[str]:
    """What was run on what; failures; what was not run."""
    lines = []
    records = [r for of_variant in comparison.records.values() for r in of_variant]
    if records:
        for what, values in {
            "Commit": {_commit(r) for r in records},
            "Device": {f"{r['device']} ({r['machine']})" for r in records},
            "Data": {_data(r["config"]) for r in records},
            "jax": {r["versions"]["jax"] for r in records},
        }.items():
            lines.append(f"{what}: {', '.join(sorted(values))}")
        seconds = sum(r["times"]["training_seconds"] for r in records)
        lines.append(
            f"Training: {seconds / 60:.1f} minutes, trainings shared with other names "
            "counted here too"
        )
        keys = [
            f"`{recipe_key(ml_collections.ConfigDict(found[0]['config']))}` {variant}"
            for variant, found in comparison.records.items()
            if found
        ]
        lines.append(f"Recipes: {'; '.join(keys)}")
        lines += [
            f"{r['variant']}, seed {r['seeds'][0]}: {r['failed']}" for r in records if r["failed"]
        ]
    if missing := [variant for variant, found in comparison.records.items() if not found]:
        lines.append(f"Not run: {', '.join(missing)}")
    return lines


def _commit(record: Mapping[str, Any]) -> str:
    trained, measured = record["commit"], record["measured_at_commit"]
    return trained if trained == measured else f"{trained} (measured at {measured})"


def _data(config: dict) -> str:
    name = config["data"]["name"]
    source = config["data"].get("source")
    return f"{name} from {source}" if source else name


def _safe(text: str) -> str:
    return text.replace("|", "\\|")
