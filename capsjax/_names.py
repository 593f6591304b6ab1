"""Things looked up by name: what to say about an unknown one, and where two tables differ."""

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")
MOST_LISTED = 20  # names in an error message; of more, the five nearest
LARGEST = 3.4028234663852886e38  # in float32
ABSENT = object()  # the value of a key that is not there
_KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a string"),
}


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Returns `table[name]`; raises ValueError for an unknown name of this `kind` of thing."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: {did_you_mean(name, table)}")
    return table[name]


def check_options(owner: str, keys: Iterable[str], known: Iterable[str], section: str = "") -> None:
    """Raises ValueError for an option that `owner`, or this `section` of it, does not have."""
    full = [dotted(section, key) for key in known]
    for key in (dotted(section, key) for key in keys):
        if key not in full:
            prefix, _, last = key.rpartition(".")
            elsewhere = [name for name in full if name.endswith(f".{last}")]
            beside = [name for name in full if prefix and name.startswith(f"{prefix}.")]
            near = did_you_mean(key, elsewhere or beside or full)
            raise ValueError(f"{owner} has no option {key!r}: {near}")


def dotted(section: str, name: str) -> str:
    """Returns the name of an option in a config."""
    return f"{section}.{name}" if section else name


def check_kind(name: str, value: Any, default: Any) -> None:
    """Raises ValueError unless the option `name` has a value of the same kind as its default."""
    if isinstance(default, tuple):
        if not isinstance(value, tuple | list):
            such = f" such as {default}" if default else ""
            raise ValueError(f"{name} must be a tuple{such}, got {value!r}")
        for element in value if default else ():
            check_kind(f"each of {name}", element, default[0])
    elif type(default) in _KINDS:
        accepted, words = _KINDS[type(default)]
        if not isinstance(value, accepted) or isinstance(value, bool) != isinstance(default, bool):
            raise ValueError(f"{name} must be {words}, got {value!r}")
        size: Any = abs(value) if isinstance(value, Real) else 0
        if not size <= LARGEST:  # nor NaN
            what = "finite in float32" if size < math.inf else "finite"
            raise ValueError(f"{name} must be {what}, got {value}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the known name nearest to `word`, and others."""
    known = sorted(set(known))
    close = get_close_matches(word, known, n=5, cutoff=0.0)
    suggestion = f"did you mean {close[0]!r}? " if close else ""
    if len(known) > MOST_LISTED:
        return f"{suggestion}Or one of {', '.join(close[1:])}"
    return f"{suggestion}Known: {', '.join(known) or 'none'}"


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], *, absent: str = "not set"
) -> list[str]:
    """Writes one line for each key in which two tables differ, with `absent` for no value."""

    def words(table: Mapping[str, Any], key: str) -> str:
        return repr(table[key]) if key in table else absent

    keys = sorted(old.keys() | new.keys())
    changed = [key for key in keys if old.get(key, ABSENT) != new.get(key, ABSENT)]
    return [f"{key}: {words(old, key)} → {words(new, key)}" for key in changed]
