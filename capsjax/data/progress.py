"""A progress bar for slow reading."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from capsjax._extras import extra

T = TypeVar("T")


def track(items: Iterable[T], description: str, total: int) -> Iterator[T]:
    """Yields `items`, showing how many are done if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    with extra("train"):
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import track as rich_track

    console = Console(stderr=True)
    yield from rich_track(items, escape(description), total, console=console, transient=True)
