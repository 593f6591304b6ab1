"""Small pieces of HTML."""

from html import escape


def section(name: str, title: str, text: str, body: str = "") -> str:
    """A part of the page: `text` is plain, `body` is HTML."""
    return f'<section id="{name}"><h2>{title}</h2><p>{escape(text)}</p>{body}</section>'


def percent(share: float) -> str:
    """Like 98.9 %."""
    return f"{100 * share:.1f} %"
