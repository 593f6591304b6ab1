"""Small pieces of HTML."""

from html import escape
from pathlib import Path

# A browser that reads this loads nothing from outside and runs no script, whatever else is here.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = Path(__file__).with_name("page.css")


def document(title: str, body: str) -> str:
    """A whole page: `title` and `body` are HTML."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
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


def section(name: str, title: str, text: str, body: str = "") -> str:
    """A part of the page: `text` is plain, `body` is HTML."""
    return f'<section id="{name}"><h2>{title}</h2><p>{escape(text)}</p>{body}</section>'


def percent(share: float) -> str:
    """Like 98.9 %."""
    return f"{100 * share:.1f} %"
