"""One page of all tables and figures, reproduced or not."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from _reproduce import results
from _reproduce.compare import Comparison
from _reproduce.tables import MEANINGLESS, Items, Picture, Table, blocks, summary

from _report.html import counted, document, section, table
from _report.pictures import data_uri

TITLE = "Tables and figures of five papers"
RULES = (
    "A claim is decided by Welch's t-test at the 5 % level, between networks that learned, with at "
    "least three seeds each. Numbers in brackets are the paper's."
)


def page(names: Mapping[str, Sequence[Comparison]], versions: dict[str, str]) -> str:
    """Writes one HTML document without outside references; names without runs are folded away.

    `versions` are of what wrote it.
    """
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    run = {
        name: comparisons
        for name, comparisons in names.items()
        if any(comparison.was_run for comparison in comparisons)
    }
    header = (
        f"<header><h1>{TITLE}</h1><p>{escape(RULES)}</p>"
        f"<p>Page written with {escape(listed)}.</p></header>"
    )
    rest = {
        name: comparisons[0]
        for name, comparisons in names.items()
        if comparisons and name not in run
    }
    parts = [_part(name, comparisons) for name, comparisons in run.items()]
    return document(TITLE, "\n".join([header, "<main>", _index(run, rest), *parts, "</main>"]))


def _index(run: Mapping[str, Sequence[Comparison]], rest: Mapping[str, Comparison]) -> str:
    rows = [
        (
            f'<a href="#{comparisons[0].stem}">{escape(name)}</a>',
            ", ".join(comparison.scale for comparison in comparisons if comparison.was_run),
            comparisons[0].experiment.title,
            summary(comparisons),
        )
        for name, comparisons in run.items()
    ]
    body = table(("name", "scale", "what", "claims"), rows) if rows else ""
    if rest:
        others = [(escape(name), comparison.experiment.title) for name, comparison in rest.items()]
        body += (
            f"<details><summary>{counted(len(rest), 'name was', 'names were')} not run</summary>"
            f"{table(('name', 'what'), others)}</details>"
        )
    text = "What was run, and what became of its claims." if rows else "Nothing was run yet."
    return section("index", "Index", text, body)


def _part(name: str, comparisons: Sequence[Comparison]) -> str:
    title, *_ = parts = list(blocks(comparisons))
    assert isinstance(title, str)
    return section(comparisons[0].stem, name, title, "".join(_html(parts[1:])))


def _html(parts: Sequence[object]) -> Iterator[str]:
    # Markdown's marks of code and of bold are of no use here.
    plain = str.maketrans("", "", "`*")
    for part in parts:
        if isinstance(part, Table):
            rows = [(escape(first), *cells) for first, *cells in part.rows]
            yield f"<h3>{escape(part.title)}</h3>{table(part.heads, rows)}"
        elif isinstance(part, Items):
            lines = "".join(f"<li>{escape(line.translate(plain))}</li>" for line in part.lines)
            summary = f"<summary>{escape(part.title)}</summary>"
            yield f"<details>{summary}<ul>{lines}</ul></details>"
        elif isinstance(part, Picture):
            address = data_uri(results.draw(part.of, "png"), "image/png")
            alt = escape(part.of.experiment.title)
            yield f'<img class="drawn" src="{address}" alt="{alt}">'
        elif part == MEANINGLESS:
            yield f'<p class="smoke"><strong>{escape(MEANINGLESS)}</strong></p>'
        else:
            yield f"<p>{escape(str(part).translate(plain))}</p>"
