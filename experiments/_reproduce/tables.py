"""What the page of a name says, as blocks, and these as Markdown."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from _reproduce.compare import BY_SIGN, VERDICTS, Comparison, Row, Verdict, kendall
from _reproduce.experiment import Claim, Estimate, Experiment
from _reproduce.recipes import recipe_key

# The head of a column of `costs.Cost`.
FULL = "full scale, hours on one v5e chip / eight / one H100 at least (estimates)"
# That of a column of `Comparison.power`.
POWER = "published differences that would stand out"
EMPTY: Mapping[str, object] = {}
MEANINGLESS = "This run proves the path only. Its numbers mean nothing."


class Table(NamedTuple):
    """A table."""

    title: str
    align: str  # "l" or "r" for each column
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
    seeds = "seed" if scale.seeds == 1 else "seeds"
    yield f"Scale {comparison.scale}, {scale.seeds} {seeds} planned. {scale.about}"
    if comparison.scale == "smoke":
        yield MEANINGLESS
    if chosen := notes(experiment):
        yield Items("Chosen here, or different from the paper", chosen)
    for column in experiment.columns:
        found = comparison.rows[column.metric]
        rows = [[variant, *_cells(row, column.digits)] for variant, row in found.items()]
        rows += [
            [f"{name} (quoted by the paper)", "–", "0", f"{value:.{column.digits}f}", "–", "–"]
            for name, value in column.quoted.items()
        ]
        heads = ("", "ours", "n", "published", "difference", "verdict")
        yield Table(column.title, "lrrrrl", heads, rows)
        if comparison.scale != "smoke" and len(column.published) > 1:
            yield _ordering(found.values())
    if comparison.scale != "smoke":
        yield from claims(comparison)
    yield Items("Runs", list(_about_runs(comparison)))
    if comparison.left:
        yield Items("Kept apart", comparison.left)


def notes(experiment: Experiment) -> list[str]:
    """What was chosen, and what differs from the paper, each said to be which."""
    chosen = [f"chosen: {text}" for text in experiment.chosen]
    return chosen + [f"different: {text}" for text in experiment.different]


def claims(comparison: Comparison) -> Iterator[Table | Items]:
    """The verdict on each claim, and why others have none."""
    experiment = comparison.experiment
    rows = [
        [
            v.claim.text,
            v.verdict,
            _difference(v, experiment.column(v.claim.metric).digits),
            printed_difference(experiment, v.claim),
        ]
        for v in comparison.verdicts
    ]
    if rows:
        yield Table("Claims", "llrr", ("claim", "verdict", "difference", "published"), rows)
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


def index(
    comparisons: Sequence[Comparison],
    earlier: str = "",
    costs: Mapping[str, object] = EMPTY,
    stands: Mapping[str, str] = EMPTY,
) -> str:
    """The page of all names; what was not run here keeps what the `earlier` page says of it.

    `costs` are the hours of full scale, in words, by name; `stands` what stands of each paper.
    """
    rows = re.findall(r"^\| \[(.+?)\]\(.* \| ([^|]*) \| ([^|]*) \|$", earlier, re.M)
    written = {name: (power, claims) for name, power, claims in rows}
    lines = [f"| name | what | {FULL} | {POWER} | claims |", "| --- | --- | ---: | ---: | --- |"]
    for one in comparisons:
        there = one.has_page or one.name in written
        name = f"[{one.name}]({one.stem}.md)" if there else one.name
        here = (one.power, one.summary)
        power, claims = here if one.has_page else written.get(one.name, here)
        cost = costs.get(one.name, "–")
        lines.append(f"| {name} | {_safe(one.experiment.title)} | {cost} | {power} | {claims} |")
    run = sum(map(_was_run, lines))
    head = f"# Tables and figures at scale {comparisons[0].scale}\n\n"
    head += f"{run} of {len(comparisons)} were run.\n\n"
    short = [f"- [{paper}](../papers/{paper}.md): {text}\n" for paper, text in stands.items()]
    return head + "\n".join([*_by_paper(lines[2:]), "", *short, *lines]) + "\n"


def _was_run(line: str) -> bool:
    """Whether a line of the index has results."""
    return "](" in line and "results kept apart only" not in line


def _by_paper(lines: Iterable[str]) -> list[str]:
    """The lines of an index counted: a row for each paper, a column for each verdict."""
    papers: dict[str, list[str]] = {}
    for line in lines:
        papers.setdefault(line.strip("| [").partition("/")[0], []).append(line)
    counts = {paper: Counter[str]() for paper in papers}
    for paper, of_paper in papers.items():
        for line in of_paper:
            for verdict, count in re.findall(r"([a-z][a-z ()]*): (\d+)", line.rpartition(" | ")[2]):
                counts[paper][verdict] += int(count)
    kinds = [kind for verdict in VERDICTS for kind in (verdict, verdict + BY_SIGN)]
    kinds = [kind for kind in kinds if any(count[kind] for count in counts.values())]
    rows = [
        [paper, f"{sum(map(_was_run, of_paper))} of {len(of_paper)}"]
        + [str(counts[paper][kind]) for kind in kinds]
        for paper, of_paper in papers.items()
    ]
    return _table(Table("", "l" + "r" * (1 + len(kinds)), ("paper", "names run", *kinds), rows))


def _table(table: Table) -> list[str]:
    rules = ["---:" if side == "r" else "---" for side in table.align]
    return [
        f"| {' | '.join(table.heads)} |".replace("|  |", "| |"),
        f"| {' | '.join(rules)} |",
        *(f"| {' | '.join(map(_safe, row))} |" for row in table.rows),
    ]


def _cells(row: Row, digits: int) -> list[str]:
    """Ours, n, published, difference, verdict."""
    return [
        "not run" if row.ours is None else _number(row.ours, digits),
        "0" if row.ours is None else str(row.ours.runs),
        printed(row.published, digits),
        _signed(row.difference, digits),
        row.verdict or "–",
    ]


def printed(value: Estimate | None, digits: int) -> str:
    """A published number as the tables have it."""
    return "–" if value is None else _number(value, digits)


def _number(value: Estimate, digits: int) -> str:
    """Mean ± standard deviation."""
    deviation = "" if value.std is None else f" ± {value.std:.{digits}f}"
    return f"{value.mean:.{digits}f}{deviation}"


def _signed(difference: float | None, digits: int) -> str:
    return "–" if difference is None else f"{difference:+.{digits}f}"


def _difference(verdict: Verdict, digits: int) -> str:
    """The difference of a claim's rows ± two standard errors."""
    near = "" if verdict.near is None else f" ± {verdict.near:.{digits}f}"
    return _signed(verdict.difference, digits) + near


def printed_difference(experiment: Experiment, claim: Claim) -> str:
    """The difference of a claim's rows in the paper."""
    column = experiment.column(claim.metric)
    more = column.printed(claim.more)
    less = column.printed(claim.less) if isinstance(claim.less, str) else Estimate(claim.less)
    known = more is not None and less is not None
    return _signed(more.mean - less.mean if known else None, column.digits)


def _ordering(rows: Iterable[Row]) -> str:
    if (found := kendall(rows)) is None:
        return "Ordering: none, as fewer than two rows can be compared or all values are equal."
    about = f"{found.rows} rows"
    if found.interval:
        about += "; 90 % interval from {:+.2f} to {:+.2f}".format(*found.interval)
    return f"Ordering against the published column: Kendall's τ = {found.tau:+.2f} ({about})."


def _about_runs(comparison: Comparison) -> Iterator[str]:
    """What was run on what; failures; what was not run."""
    run = {variant: found for variant, found in comparison.records.items() if found}
    records = [record for found in run.values() for record in found]
    if records:
        yield f"Commit: {_each(_commit(r) for r in records)}"
        yield f"Device: {_each('{device} ({machine})'.format_map(r) for r in records)}"
        yield f"Data: {_each(_data(r['config']['data']) for r in records)}"
        yield f"jax: {_each(r['versions']['jax'] for r in records)}"
        minutes = sum(r["times"]["training_seconds"] for r in records) / 60
        yield f"Training: {minutes:.1f} minutes, trainings shared with other names counted here too"
        keys = {v: recipe_key(ConfigDict(found[0]["config"])) for v, found in run.items()}
        yield f"Recipes: {'; '.join(f'`{key}` {variant}' for variant, key in keys.items())}"
    for record in records:
        if record["failed"]:
            yield f"{record['variant']}, seed {record['seeds'][0]}: {record['failed']}"
    if missing := [variant for variant in comparison.records if variant not in run]:
        yield f"Not run: {', '.join(missing)}"


def _each(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _commit(record: Mapping[str, Any]) -> str:
    trained, measured = record["commit"], record["measured_at_commit"]
    return trained if trained == measured else f"{trained} (measured at {measured})"


def _data(options: Mapping[str, Any]) -> str:
    source = options.get("source")
    return f"{options['name']} from {source}" if source else options["name"]


def _safe(text: str) -> str:
    return text.replace("|", "\\|")
