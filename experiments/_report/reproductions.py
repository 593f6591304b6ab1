"""One page of all tables and figures, reproduced or not."""

import io
from collections.abc import Sequence
from html import escape

from _reproduce import results
from _reproduce.compare import Comparison
from _reproduce.tables import Items, Table, blocks

from _report.html import document, section
from _report.pictures import data_uri

RULES = (
    "“Order” counts the other rows on the same side as in the paper; “value” is said at full scale "
    "only; a claim holds, or does not, where means differ by more than two standard errors, and is "
    "undecided in between (with one run, by sign alone). Smoke runs prove the path and compare "
    "nothing."
)


def page(comparisons: Sequence[Comparison], versions: dict[str, str]) -> str:
    """One HTML document that refers to nothing outside itself.

    Args:
      comparisons: of every name, by scale; those without runs are shown as missing.
      versions: of what wrote the page.
    """
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    header = (
        "<header><h1>Tables and figures of five papers</h1>"
        f"<p>{escape(RULES)}</p><p>Page written with {escape(listed)}.</p></header>"
    )
    body = [header, _index(comparisons), *(_part(one) for one in comparisons if one.has_page)]
    return document("Tables and figures of five papers", "\n".join(body))


def _anchor(comparison: Comparison) -> str:
    return f"{comparison.stem}_{comparison.scale}"


def _index(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for one in comparisons:
        name = escape(one.name)
        if one.has_page:
            name = f'<a href="#{_anchor(one)}">{name}</a>'
        rows.append((name, one.scale, one.experiment.title, one.summary))
    return section(
        "index",
        "Index",
        "What holds, what does not, what was not run.",
        _table(("name", "scale", "what", "claims"), rows),
    )


def _part(comparison: Comparison) -> str:
    experiment = comparison.experiment
    first, *rest = blocks(comparison)
    body = []
    for block in rest:
        if isinstance(block, Table):
            rows = [(escape(name), *cells) for name, *cells in block.rows]
            body.append(f"<h3>{escape(block.title)}</h3>{_table(block.heads, rows)}")
        elif isinstance(block, Items):
            lines = "".join(f"<li>{escape(line)}</li>" for line in block.lines)
            body.append(f"<h3>{escape(block.title)}</h3><ul>{lines}</ul>")
        else:
            body.append(f"<p>{escape(block)}</p>")
    if experiment.figure is not None:
        picture = io.BytesIO()
        results.draw(comparison, picture, "png")
        address = data_uri(picture.getvalue(), "image/png")
        body.append(f'<img class="drawn" src="{address}" alt="{escape(experiment.title)}">')
    assert isinstance(first, str)
    return section(_anchor(comparison), comparison.name, first, "".join(body))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first cell of each row is HTML, the others are plain."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in heads)
    body = "".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
