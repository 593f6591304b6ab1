"""Things looked up by name, and what to say about an unknown name or option."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """`table[name]`; raises ValueError for an unknown name of a `kind` of thing."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: {nearest(name, table)}")
    return table[name]


def check_options(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for an option that `owner` does not have."""
    known = list(known)
    for key in given:
        if key not in known:
            raise ValueError(f"{owner} has no option {key!r}: {nearest(key, known)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name nearest to `word`, then all of them."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.0)
    suggestion = f"did you mean {close[0]!r}? " if close else ""
    return f"{suggestion}Known: {', '.join(known) or 'none'}"
