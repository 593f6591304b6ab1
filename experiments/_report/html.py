"""Small pieces of HTML."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

# A browser that reads this loads nothing from outside and runs no script but those that are named
# by their contents, whatever else is here.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'"
)
STYLE = Path(__file__).with_name("page.css")


def document(title: str, body: str, scripts: Sequence[str] = (), data: Any = None) -> str:
    """A whole page.

    Args:
      title: HTML.
      body: HTML.
      scripts: names of the JavaScript files beside this one that the page holds.
      data: what they read, as JSON, from the element "data".
    """
    sources = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in scripts]
    policy = POLICY
    if sources:
        policy += "; script-src " + " ".join(map(_hash, sources))
        text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
        # In a script nothing is escaped: there must be nothing that could end it.
        text = text.replace("<", "\\u003c")
        body += f'\n<script type="application/json" id="data">{text}</script>'
        body += "".join(f"\n<script>{source}</script>" for source in sources)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
{body}
</body>
</html>
"""
    # A file's name need not be text: what cannot be written is shown by its number.
    return page.encode("utf-8", "backslashreplace").decode()


def section(name: str, title: str, text: str, body: str = "") -> str:
    """A part of the page: `title` and `text` are plain, `body` is HTML."""
    return f'<section id="{name}"><h2>{escape(title)}</h2><p>{escape(text)}</p>{body}</section>'


def counted(number: int, one: str, several: str = "") -> str:
    """Like "1 image" and "1,200 images"."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first cell of each row is its head, in HTML, and the others are plain."""
    head = "".join(
        f'<th scope="col">{escape(text)}</th>' if text else "<td></td>" for text in heads
    )
    body = "".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def contents(titles: dict[str, str]) -> str:
    """Links to the sections, by name; the titles are plain."""
    links = "".join(f'<li><a href="#{k}">{escape(v)}</a></li>' for k, v in titles.items())
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def percent(share: float) -> str:
    """Like 98.9 %."""
    return f"{100 * share:.1f} %"


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
