"""A comparison as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

from _reproduce.compare import Comparison, Row, Values, Verdict
from _reproduce.experiment import Column, Experiment, Published
from _reproduce.recipes import recipe_key

MISSING = "not run"
NOTES = "Chosen here, or different from the paper"


def markdown(comparison: Comparison) -> str:
    """The whole page of a name: tables, orderings, claims, what was run."""
    experiment, scale = comparison.experiment, comparison.scale
    lines = [f"# {comparison.name}", "", f"{experiment.title}.", ""]
    lines += [about_scale(comparison), ""]
    if listed := notes(experiment):
        lines += [f"{NOTES}:", "", *(f"- {_safe(line)}" for line in listed), ""]
    if scale == "smoke":
        lines += ["This run proves the path only. Its numbers mean nothing.", ""]
    for column in experiment.columns:
        lines += _table(comparison, column)
    lines += _claims(comparison)
    lines += ["## Runs", "", *(f"- {_safe(line)}" for line in about_runs(comparison))]
    if comparison.left:
        lines += ["", "## Kept apart", ""]
        lines += [f"- {_safe(line)}" for line in comparison.left]
    return "\n".join(lines).rstrip() + "\n"


def notes(experiment: Experiment) -> list[str]:
    """What was chosen, and what departs from the paper's words, each with which it is."""
    return [f"chosen: {text}" for text in experiment.chosen] + [
        f"different: {text}" for text in experiment.different
    ]


def picture(comparison: Comparison) -> str:
    """The line that shows the figure of a page."""
    return f"\n![{comparison.experiment.title}]({comparison.stem}.png)\n"


def index(comparisons: Sequence[Comparison]) -> str:
    """All names, those that were not run too, as a page beside those of `markdown`."""
    run = sum(one.was_run for one in comparisons)
    lines = [
        f"# Tables and figures at scale {comparisons[0].scale}",
        "",
        f"{run} of {len(comparisons)} were run.",
        "",
        "| name | what | claims | Kendall's τ |",
        "| --- | --- | --- | --- |",
    ]
    for one in comparisons:
        name = f"[{one.name}]({one.stem}.md)" if one.was_run or one.left else one.name
        cells = (name, _safe(one.experiment.title), one.summary, _safe(one.orderings))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def number(values: Values | None, digits: int) -> str:
    """Mean ± standard deviation."""
    if values is None:
        return MISSING
    if values.std is None:
        return f"{values.mean:.{digits}f}"
    return f"{values.mean:.{digits}f} ± {values.std:.{digits}f}"


def printed(published: Published | None, digits: int) -> str:
    """As the paper has it."""
    if published is None:
        return "–"
    if published.std is None:
        return f"{published.mean:.{digits}f}"
    return f"{published.mean:.{digits}f} ± {published.std:.{digits}f}"


def cells(row: Row, column: Column) -> list[str]:
    """Ours, n, published, difference, verdict."""
    difference = row.difference
    verdict = []
    if row.order is not None:
        verdict.append(f"order {row.order[0]}/{row.order[1]}")
    if row.value is not None:
        verdict.append(row.value)
    return [
        number(row.ours, column.digits),
        str(len(row.ours.values)) if row.ours else "0",
        printed(row.published, column.digits),
        "–" if difference is None else f"{difference:+.{column.digits}f}",
        ", ".join(verdict) or "–",
    ]


def ordering(comparison: Comparison, column: Column) -> str | None:
    """Kendall's τ in words; None where nothing is printed or compared."""
    if comparison.scale == "smoke" or len(column.published) < 2:
        return None
    found = comparison.tau[column.metric]
    if found is None:
        return "Ordering: fewer than two rows to compare."
    return (
        f"Ordering against the published column: Kendall's τ = {found[0]:+.2f} ({found[1]} rows)."
    )


def margin(comparison: Comparison, verdict: Verdict) -> str:
    """By how much the one is above the other."""
    if verdict.difference is None:
        return "–"
    columns = {column.metric: column for column in comparison.experiment.columns}
    return f"{verdict.difference:+.{columns[verdict.claim.metric].digits}f}"


def _table(comparison: Comparison, column: Column) -> list[str]:
    lines = [
        f"## {column.title}",
        "",
        "| | ours | n | published | difference | verdict |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for variant, row in comparison.rows[column.metric].items():
        lines.append(f"| {' | '.join([_safe(variant), *cells(row, column)])} |")
    for name, value in column.quoted.items():
        lines.append(
            f"| {_safe(name)} (quoted by the paper) | – | 0 | {value:.{column.digits}f} | – | – |"
        )
    lines.append("")
    if text := ordering(comparison, column):
        lines += [text, ""]
    return lines


def _claims(comparison: Comparison) -> list[str]:
    lines = []
    if comparison.verdicts:
        lines += ["## Claims", "", "| claim | verdict | difference |", "| --- | --- | ---: |"]
        lines += [
            f"| {_safe(verdict.claim.text)} | {verdict.said} | {margin(comparison, verdict)} |"
            for verdict in comparison.verdicts
        ]
        lines.append("")
    if untested := comparison.experiment.untested:
        lines += ["Claims that no rule decides here:", ""]
        lines += [f"- {_safe(claim)}: {_safe(reason)}" for claim, reason in untested.items()]
        lines.append("")
    return lines


def about_scale(comparison: Comparison) -> str:
    """What is smaller than in the paper."""
    scale = comparison.experiment.scales[comparison.scale]
    seeds = "1 seed" if scale.seeds == 1 else f"{scale.seeds} seeds"
    return f"Scale {comparison.scale}, {seeds} planned. {scale.about}"


def about_runs(comparison: Comparison) -> list[str]:
    """What was run on what; failures; what was not run."""
    lines = []
    records = [r for of_variant in comparison.records.values() for r in of_variant]
    missing = [variant for variant, found in comparison.records.items() if not found]
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
    if missing:
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
