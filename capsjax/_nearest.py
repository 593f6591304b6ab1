"""What to say about a name that nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name nearest to `word`, then all of them."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.0)
    suggestion = f"did you mean {close[0]!r}? " if close else ""
    return f"{suggestion}Known: {', '.join(known) or 'none'}"
