"""From folders of results to comparisons, and what the pages say of these, in Markdown."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import _cli
import matplotlib
import numpy as np

from _reproduce.compare import (
    CHANCE,
    DECIDED,
    FEWEST,
    NOT_RUN,
    VERDICTS,
    Comparison,
    Verdict,
    after_holm,
    best_verdicts,
    estimate,
)
from _reproduce.experiment import ENTROPY, PARAMETERS, SCALES, SHARE, Estimate, Experiment
from _reproduce.runs import Store, key_of, outcome, read_json, recorded
from capsjax._files import replacing, write_atomically

MEANINGLESS = "This run proves the path only. Its numbers mean nothing."
NO_RECORDS = "Not run yet, so nothing is decided."


def gather(store: Store, name: str, experiment: Experiment) -> Comparison:
    """Gathers the records of `name`: those of today's recipe, and those kept apart."""
    records, left = dict[str, list[dict]](), []
    for row in experiment.at(store.scale).values():
        records[row.name] = []
        for number, file, record, changes in recorded(store, name, experiment, row):
            if changes:
                run = f"{row.name}, run {number} ({outcome(record)})"
                left.append(f"{run}: made with an older recipe ({', '.join(changes)})")
                continue
            if record["arrays"]:
                with np.load(file.with_suffix(".npz")) as arrays:
                    record["loaded"] = {key: arrays[key] for key in record["arrays"]}
            records[row.name].append(record)
    return Comparison(name, experiment, store.scale, records, left)


def gather_all(
    stores: Sequence[Store], experiments: Mapping[str, Experiment]
) -> dict[str, list[Comparison]]:
    """Compares each name at each of its scales in `stores`, or else, without records, at full."""
    comparisons = {}
    for name, experiment in experiments.items():
        there = [store for store in stores if store.scale in experiment.scales]
        gathered = [gather(store, name, experiment) for store in there]
        none = dict.fromkeys(experiment.at("full"), ())
        comparisons[name] = gathered or [Comparison(name, experiment, "full", none)]
    return comparisons


def folders(workdir: Path) -> list[Store]:
    """Returns the folders of results in `workdir`, the largest scale first, or that folder."""
    inside = [workdir / scale for scale in reversed(SCALES)]
    with_results = [folder for folder in (workdir, *inside) if (folder / "about.json").exists()]
    if not with_results:
        raise FileNotFoundError(
            f"{workdir} holds no results: expected the --workdir of experiments/reproduce.py"
        )
    scales = [read_json(folder / "about.json")["scale"] for folder in with_results]
    return [Store(f, s, {}, None).with_earlier() for f, s in zip(with_results, scales, strict=True)]


def write(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Writes NAME.md, and NAME.png where it has a figure and was run; returns the files."""
    page = folder / f"{comparisons[0].stem}.md"
    picture = page.with_suffix(".png")
    write_atomically(page, markdown(comparisons[0].name, blocks(comparisons)))
    shown = pictured(comparisons)
    if shown is None:
        picture.unlink(missing_ok=True)
        return [page]
    with matplotlib.rc_context({"font.size": 9}), replacing(picture) as file:
        shown.experiment.figure(shown).savefig(file, format="png")
    return [page, picture]


def pictured(comparisons: Sequence[Comparison]) -> Comparison | None:
    """Returns the comparison whose figure is on the page of a name: the largest that was run."""
    drawn = (c for c in comparisons if c.was_run and c.experiment.figure is not None)
    return next(drawn, None)


def blocks(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Writes the page of a name: figure, tables and claims, then how they were made."""
    experiment = comparisons[0].experiment
    yield f"{experiment.title}."
    run = [comparison for comparison in comparisons if comparison.was_run]
    if not run:
        yield NO_RECORDS
    if pictured(comparisons):
        yield f"![{experiment.title}]({run[0].stem}.png)"
    for comparison in run:
        yield f"**Scale {comparison.scale}**: {experiment.scales[comparison.scale].about}"
        if comparison.scale == "smoke":
            yield MEANINGLESS
        yield from _tables(comparison)
        if comparison.scale != "smoke":
            yield from claims(comparison, of=run)
    if not run:
        yield from claims(comparisons[-1])
    notes = [f"chosen: {text}" for text in experiment.chosen]
    notes += [f"different: {text}" for text in experiment.different]
    yield from _folded("Our choices, and differences from the paper", notes)
    for comparison in run:
        yield from _folded(f"Runs at scale {comparison.scale}", [*_about_runs(comparison)])
    left = [f"{comparison.scale}: {line}" for comparison in comparisons for line in comparison.left]
    yield from _folded("Kept apart", left)


def _tables(comparison: Comparison) -> Iterator[str]:
    """Makes one table for neighbouring columns of one title, and one of how networks routed."""
    failed = {} if comparison.scale == "smoke" else comparison.failed
    for title, group in groupby(comparison.experiment.columns, lambda column: column.title):
        columns = [c for c in group if any(comparison.cells[c.metric].values()) or c.quoted]
        rows = []
        for name in comparison.cells[columns[0].metric] if columns else ():
            cells = [comparison.cells[column.metric][name] for column in columns]
            if any(cells):
                runs = str(next((cell.ours.runs for cell in cells if cell.ours), "–"))
                if name in comparison.diverged:
                    runs += f" of {len(comparison.records[name])}"
                values = [_beside(*cell, c.digits) for cell, c in zip(cells, columns, strict=True)]
                said = f"{name} (did not learn)" if name in failed else name
                rows.append([said, runs, *values])
        for name in dict.fromkeys(name for column in columns for name in column.quoted):
            quoted = [f"({c.quoted[name]:.2f})" if name in c.quoted else "–" for c in columns]
            rows.append([f"{name} (quoted by the paper)", "–", *quoted])
        heads = [column.head or "ours (the paper's)" for column in columns]
        yield from _table(title, ("", "n", *heads), rows)
    yield from _networks(comparison)


def _networks(comparison: Comparison) -> Iterator[str]:
    """Makes a table of how large the trained networks are, how long trained and how they route."""
    rows = []
    for name, records in comparison.records.items():
        done = [record for record in records if not record["failed"]]
        if not done or comparison.rows[name].network != "trained":
            continue
        sizes = {f"{r['metrics'][PARAMETERS]:,}" for r in done if PARAMETERS in r["metrics"]}
        # Some stop early. Without held-out images there is no curve.
        curves = [record["series"].get("validation") for record in done]
        limits = [record["config"]["training"]["epochs"] for record in done]
        epochs = [len(curve) if curve else n for curve, n in zip(curves, limits, strict=True)]
        long = str(epochs[0]) if len(set(epochs)) == 1 else _beside(estimate(epochs), None, 1)
        routed = [[r["metrics"][m] for r in done if m in r["metrics"]] for m in (ENTROPY, SHARE)]
        how = [_beside(estimate(own), None, 1) for own in routed]
        rows.append([name, " or ".join(sorted(sizes)) or "–", long, *how])
    heads = ["", "parameters", "epochs", "entropy of the couplings, % of equal ones"]
    heads.append("share of the true class, %")
    kept = 5 if any(row[3] != "–" for row in rows) else 3
    yield from _table("The networks", heads[:kept], [row[:kept] for row in rows])


def claims(comparison: Comparison, of: Sequence[Comparison] = ()) -> Iterator[str]:
    """Yields the verdict on each claim in words, and why others have none.

    Those that only another scale `of` the page has run are left to it.
    """
    experiment = comparison.experiment
    run = {v.claim for other in of for v in other.verdicts if v.verdict != NOT_RUN}
    rows = [
        [v.claim.text, v.verdict, in_words(v, experiment)]
        for v in comparison.verdicts
        if v.verdict != NOT_RUN or v.claim not in run
    ]
    yield from _table("What the paper says, and what we find", ("claim", "verdict", ""), rows)
    lines = [f"{claim}: {reason}" for claim, reason in experiment.untested.items()]
    yield from _folded("Claims not tested, and why", lines)


def in_words(verdict: Verdict, experiment: Experiment) -> str:
    """Returns a verdict, such as "“CapsNet” is 2.1 above “CNN” (0.9 to 3.3; 3 and 3 seeds)"."""
    claim, result = verdict.claim, verdict.difference
    if result is None:
        return verdict.reason
    sides = claim.more, verdict.against
    name = [f"“{side}”" if isinstance(side, str) else f"{side:g}" for side in sides]
    mean, low, high = (number - claim.slack for number in result[:3])
    digits = _digits((high - low) / 2, experiment.column(claim.metric).digits)
    seeds = " and ".join(map(str, verdict.runs))
    apart = f"{abs(mean):.{digits}f}"
    rounded = f"within {0.5 / 10**digits:g} of"
    where = f"{apart} {'above' if mean > 0 else 'below'}" if float(apart) else rounded
    interval = f"{low:+.{digits}f} to {high:+.{digits}f}"
    if isinstance(claim.less, tuple) and result.high < 0:
        interval += f" before correction for {len(claim.less)} comparisons"
    text = f"{name[0]} is {where} {name[1]} (95 %: {interval}; {seeds} seeds)"
    if verdict.reason:
        text = f"{verdict.reason}; {text}"
    more, less = (
        experiment.printed(claim.metric, side) if isinstance(side, str) else Estimate(side)
        for side in sides
    )
    if more is not None and less is not None:
        text += f"; in the paper {more.mean - less.mean:+.{digits}f}"
    if claim.slack and verdict.verdict == CHANCE:
        text += ". Neither within the margin nor beyond it"
    if verdict.seen is False and verdict.verdict == CHANCE:
        text += ". With so few seeds a difference like the paper's is easily missed"
    return text


def markdown(title: str, parts: Iterable[str]) -> str:
    """Writes `parts` below a title."""
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def index(names: Mapping[str, Sequence[Comparison]], findings: Mapping[str, str]) -> str:
    """Writes the page of all names, a sentence on each paper; the largest scale comes first."""
    verdicts = {name: best_verdicts(comparisons) for name, comparisons in names.items()}
    run = sum(any(comparison.was_run for comparison in every) for every in names.values())
    tested = [verdict.verdict in DECIDED for of_name in verdicts.values() for verdict in of_name]
    links = {p: f"[{p}](../papers/{p}.md)" if text else p for p, text in findings.items()}
    by_paper = []
    for paper in findings:
        of_paper = [v for name in names if name.startswith(f"{paper}/") for v in verdicts[name]]
        by_paper.append([links[paper], *_counts(after_holm(of_paper))])
    every = [_line(name, comparisons, verdicts[name]) for name, comparisons in names.items()]
    heads = ("", "scale", "seeds", *VERDICTS, "would detect the paper's difference")
    return markdown(
        "What we found",
        [
            "\n".join(f"- **{links[p]}**: {text}" for p, text in findings.items() if text),
            f"{run} of {len(names)} tables and figures were run; of the {len(tested)} claims that "
            f"a rule can decide, {sum(tested)} were tested. A claim is decided by Welch's t-test "
            f"between networks that learned, with at least {FEWEST} seeds each and against "
            "controls (docs/reproduce.md).",
            *_table("Claims by paper, after Holm's correction", ("", *VERDICTS), by_paper),
            *_table("Claims by table and figure, each at the 5 % level", heads, every),
        ],
    )


def _counts(verdicts: Iterable[str]) -> list[str]:
    count = Counter(verdicts)
    return [str(count[verdict]) for verdict in VERDICTS]


def _line(name: str, comparisons: Sequence[Comparison], verdicts: Sequence[Verdict]) -> list[str]:
    run = [comparison for comparison in comparisons if comparison.was_run]
    # Raw pixels have no seeds.
    rows = [(c.records[name], row) for c in run for name, row in c.rows.items()]
    seeds = sorted({len(r) for r, row in rows if r and row.network != "pixels"})
    asked = [verdict.seen for verdict in verdicts if verdict.seen is not None]
    return [
        f"[{name}]({comparisons[0].stem}.md)",
        ", ".join(comparison.scale for comparison in run) or "–",
        f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]) if seeds else "–",
        *_counts(verdict.verdict for verdict in verdicts),
        f"{sum(asked)} of {len(asked)}" if asked else "–",
    ]


def summary(comparisons: Sequence[Comparison]) -> str:
    """Counts a name's claims by verdict, for a list."""
    count = Counter(verdict.verdict for verdict in best_verdicts(comparisons))
    return ", ".join(f"{v}: {count[v]}" for v in VERDICTS if count[v]) or "no claims"


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yields a list that is folded away; nothing if it is empty."""
    if lines:
        items = "\n".join(f"- {line}" for line in lines)
        yield f"<details><summary>{title}</summary>\n\n{items}\n\n</details>"


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a table; nothing if it is empty."""
    numbers = range(1, len(heads))
    wordy = [n for n in numbers if any(row[n][:1].isalpha() or "“" in row[n] for row in rows)]
    if rows:
        table = _cli.markdown_table(heads, rows, (0, *wordy))
        yield f"## {title}\n\n{table.replace('|  |', '| |')}"


def _beside(ours: Estimate | None, printed: Estimate | None, digits: int) -> str:
    """Writes our number, and the paper's in brackets."""
    text = "–" if ours is None else _number(ours, digits)
    return text if printed is None else f"{text} ({_number(printed, digits)})"


def _number(value: Estimate, digits: int) -> str:
    """Returns the mean ± standard deviation."""
    digits = _digits(value.std, digits)
    deviation = "" if value.std is None else f" ± {value.std:.{digits}f}"
    return f"{value.mean:.{digits}f}{deviation}"


def _digits(error: float | None, most: int) -> int:
    """Returns as many digits after the point as show two figures of the error, if there is one."""
    return max(0, min(most, 1 - math.floor(math.log10(error)))) if error else most


def _about_runs(comparison: Comparison) -> Iterator[str]:
    """Says what was run on what, what failed, and what was not run."""
    run = {name: records for name, records in comparison.records.items() if records}
    records = [record for of_row in run.values() for record in of_row]
    data = [(r["config"]["data"]["name"], r["config"]["data"].get("source")) for r in records]
    for what, texts in (
        ("Device", map("{device} ({machine})".format_map, records)),
        ("Data", (f"{name} from {source}" if source else name for name, source in data)),
        ("jax", (record["versions"]["jax"] for record in records)),
    ):
        yield f"{what}: {', '.join(sorted(set(texts)))}"
    minutes = sum(r["times"]["training_seconds"] for r in records) / 60
    yield f"Training: {minutes:.1f} minutes, including trainings shared with other pages"
    rows = (
        f"`{key_of(of_row[0]['config'])}` {name} ({', '.join(sorted(set(map(_commit, of_row))))})"
        for name, of_row in run.items()
    )
    yield f"Recipes (commits): {'; '.join(rows)}"
    for name, reached in comparison.failed.items():
        yield f"Did not learn: {name} ({reached})"
    for record in records:
        if record["failed"]:
            yield f"{record['variant']}, seed {record['seeds'][0]}: {record['failed']}"
    if missing := [name for name in comparison.records if name not in run]:
        yield f"Not run: {', '.join(missing)}"


def _commit(record: Mapping[str, Any]) -> str:
    trained, measured = record["commit"], record["measured_at_commit"]
    return trained if trained == measured else f"{trained} (measured at {measured})"
