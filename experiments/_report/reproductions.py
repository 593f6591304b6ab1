"""One page of all tables and figures that were reproduced, and of those that were not."""

import io
from collections.abc import Sequence
from html import escape

from _reproduce import results, tables
from _reproduce.compare import Comparison

from _report.html import document, section
from _report.pictures import data_uri


def page(comparisons: Sequence[Comparison], versions: dict[str, str]) -> str:
    """One HTML document that refers to nothing outside itself.

    Args:
      comparisons: of every name, by scale; those without runs are shown as missing.
      versions: of what wrote the page.
    """
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    header = (
        "<header><h1>Tables and figures of five papers</h1>"
        f"<p>{escape(_rules())}</p><p>Page written with {escape(listed)}.</p></header>"
    )
    body = [header, _index(comparisons), *(_part(one) for one in comparisons if one.was_run)]
    return document("Tables and figures of five papers", "\n".join(body))


def _rules() -> str:
    return (
        "“Order” counts the other rows on the same side as in the paper; “value” is said at full "
        "scale only; a claim holds, or does not, where means differ by more than two standard "
        "errors, and is undecided between (with one run, by sign alone). Smoke runs prove the "
        "path and compare nothing."
    )


def _anchor(comparison: Comparison) -> str:
    return f"{comparison.stem}_{comparison.scale}"


def _index(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for one in comparisons:
        name = escape(one.name)
        if one.was_run:
            name = f'<a href="#{_anchor(one)}">{name}</a>'
        cells = (one.scale, one.experiment.title, one.summary, one.orderings)
        rows.append(
            f'<tr><th scope="row">{name}</th>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    return section(
        "index",
        "Index",
        "What holds, what does not, what was not run.",
        _table(("name", "scale", "what", "claims", "Kendall’s τ"), "".join(rows)),
    )


def _part(comparison: Comparison) -> str:
    experiment = comparison.experiment
    body = [f"<p>{escape(tables.about_scale(comparison))}</p>"]
    if listed := tables.notes(experiment):
        items = "".join(f"<li>{escape(line)}</li>" for line in listed)
        body.append(f"<p>{tables.NOTES}:</p><ul>{items}</ul>")
    for column in experiment.columns:
        rows = "".join(
            _row(variant, tables.cells(row, column))
            for variant, row in comparison.rows[column.metric].items()
        )
        rows += "".join(
            _row(
                f"{name} (quoted by the paper)", ["–", "0", f"{value:.{column.digits}f}", "–", "–"]
            )
            for name, value in column.quoted.items()
        )
        heading = ("", "ours", "n", "published", "difference", "verdict")
        body.append(f"<h3>{escape(column.title)}</h3>{_table(heading, rows)}")
        if text := tables.ordering(comparison, column):
            body.append(f"<p>{escape(text)}</p>")
    if comparison.verdicts:
        rows = "".join(
            _row(verdict.claim.text, [verdict.said, tables.margin(comparison, verdict)])
            for verdict in comparison.verdicts
        )
        body.append(f"<h3>Claims</h3>{_table(('claim', 'verdict', 'difference'), rows)}")
    if experiment.figure is not None:
        picture = io.BytesIO()
        results.draw(comparison, picture, "png")
        address = data_uri(picture.getvalue(), "image/png")
        body.append(f'<img class="drawn" src="{address}" alt="{escape(experiment.title)}">')
    listed = [
        *tables.about_runs(comparison),
        *(f"Kept apart: {x}" for x in comparison.left),
    ]
    lines = "".join(f"<li>{escape(line)}</li>" for line in listed)
    body.append(f"<ul>{lines}</ul>")
    return section(
        _anchor(comparison), escape(comparison.name), f"{experiment.title}.", "".join(body)
    )


def _row(name: str, cells: Sequence[str]) -> str:
    return (
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
    )


def _table(heading: Sequence[str], rows: str) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in heading)
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
