"""One page of all tables and figures, reproduced or not."""

import io
from collections.abc import Iterator, Sequence
from html import escape

from _reproduce import results
from _reproduce.compare import Comparison
from _reproduce.tables import MEANINGLESS, Items, Table, blocks

from _report.html import counted, document, section, table
from _report.pictures import data_uri

TITLE = "Tables and figures of five papers"


def page(comparisons: Sequence[Comparison], versions: dict[str, str]) -> str:
    """One HTML document that refers to nothing outside itself.

    Args:
      comparisons: of every name, by scale; those without runs are folded away.
      versions: of what wrote the page.
    """
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    run = [one for one in comparisons if one.has_page]
    rules = " ".join(_rules(run))
    header = (
        f"<header><h1>{TITLE}</h1><p>{escape(rules)}</p>"
        f"<p>Page written with {escape(listed)}.</p></header>"
    )
    rest = [one for one in comparisons if not one.has_page]
    body = [header, "<main>", _index(run, rest), *map(_part, run), "</main>"]
    return document(TITLE, "\n".join(body))


def _rules(run: Sequence[Comparison]) -> Iterator[str]:
    """What the words mean that the page uses, and no others."""
    compared = [one for one in run if one.scale != "smoke"]
    rows = [row for one in compared for found in one.rows.values() for row in found.values()]
    if any("order" in row.verdict for row in rows):
        yield (
            "“Order” counts the rows on the same side of this one as in the paper, of those that "
            "are printed and were run."
        )
    if any(one.scale == "full" and any(one.records.values()) for one in run):
        yield (
            "“Same”, “higher” and “lower” compare a value with the published one, by two standard "
            "errors or the tolerance of the table."
        )
    verdicts = {verdict.verdict for one in compared for verdict in one.verdicts} - {"not run"}
    if verdicts:
        yield (
            "A claim holds, or does not, where means differ by more than two standard errors, and "
            "is undecided in between (with one run, by sign alone)."
        )
    if any(one.scale == "smoke" for one in run):
        yield "Smoke runs prove that the path works; their numbers mean nothing."


def _anchor(comparison: Comparison) -> str:
    return f"{comparison.stem}_{comparison.scale}"


def _index(run: Sequence[Comparison], rest: Sequence[Comparison]) -> str:
    heads = ("name", "scale", "what", "claims")
    rows = [
        (
            f'<a href="#{_anchor(one)}">{escape(one.name)}</a>',
            one.scale,
            one.experiment.title,
            "none: a smoke run" if one.scale == "smoke" else one.summary,
        )
        for one in run
    ]
    body = table(heads, rows) if rows else ""
    if rest:
        others = [(escape(one.name), one.scale, one.experiment.title) for one in rest]
        body += (
            f"<details><summary>{counted(len(rest), 'name was', 'names were')} not run</summary>"
            f"{table(heads[:3], others)}</details>"
        )
    text = "What was run, and what became of its claims." if rows else "Nothing was run yet."
    return section("index", "Index", text, body)


def _part(comparison: Comparison) -> str:
    experiment = comparison.experiment
    first, *rest = blocks(comparison)
    body = []
    for block in rest:
        if isinstance(block, Table):
            rows = [(escape(name), *cells) for name, *cells in block.rows]
            body.append(f"<h3>{escape(block.title)}</h3>{table(block.heads, rows)}")
        elif isinstance(block, Items):
            # Markdown's marks of code are of no use here.
            lines = "".join(f"<li>{escape(line.replace('`', ''))}</li>" for line in block.lines)
            body.append(f"<h3>{escape(block.title)}</h3><ul>{lines}</ul>")
        elif block == MEANINGLESS:
            body.append(f'<p class="smoke"><strong>{escape(block)}</strong></p>')
        else:
            body.append(f"<p>{escape(block)}</p>")
    if experiment.figure is not None:
        picture = io.BytesIO()
        results.draw(comparison, picture, "png")
        address = data_uri(picture.getvalue(), "image/png")
        body.append(f'<img class="drawn" src="{address}" alt="{escape(experiment.title)}">')
    assert isinstance(first, str)
    return section(_anchor(comparison), comparison.name, first, "".join(body))
