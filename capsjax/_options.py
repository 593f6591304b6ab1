"""Options, each declared once: as a field of a frozen dataclass.

A line under "Attributes:" in the docstring of its class documents it.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

from capsjax._names import check_kind, check_options, dotted


def tuples(value: Any) -> Any:
    """Returns `value`, or all in a dict, with tuples for lists and Python's numbers for NumPy's."""
    if isinstance(value, dict):
        return {k: tuples(v) for k, v in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value


def checked(
    default: Any,
    accepts: Callable[[Any], bool],
    requirement: str,
    *,
    example: Any = None,
    whole: bool = False,
) -> Any:
    """Returns a field whose value, or each element of a tuple, must be one that `accepts` accepts.

    Values are of the same kind as `example`, which is by default the default; an integer for None,
    a tuple of integers for (). `requirement` is such as "must be positive". With `whole`, `accepts`
    takes a tuple as one.
    """
    example = example or {None: 1, (): (1,)}.get(default, default)
    check = {"accepts": accepts, "requirement": requirement, "example": example, "whole": whole}
    return field(default=default, metadata=check)


def positive(default: Any) -> Any:
    """Returns a field for a number, or a tuple of integers, greater than 0; see `checked`."""
    return checked(default, lambda value: value > 0, "must be positive")


def not_negative(default: Any) -> Any:
    """Returns a field for a number, or a tuple of integers, all at least 0."""
    return checked(default, lambda value: value >= 0, "must not be negative")


def fraction(default: float) -> Any:
    """Returns a field for a number in (0, 1]."""
    return checked(default, lambda value: 0 < value <= 1, "must be in (0, 1]")


def decay(default: float) -> Any:
    """Returns a field for a number in [0, 1)."""
    return checked(default, lambda value: 0 <= value < 1, "must be in [0, 1)")


def one_of(default: str, *others: str) -> Any:
    """Returns a field for one of these words."""
    words = (default, *others)
    return checked(default, lambda value: value in words, f"must be one of {', '.join(words)}")


def names() -> Any:
    """Returns a field for a tuple of strings, by default empty."""
    return checked((), lambda value: value != "", "must be names, none empty", example=("conv",))


@dataclass(frozen=True)
class Options:
    """The base class of options; raises ValueError for a value that a field does not allow.

    `SECTION` is the part of a config that a class declares, and stands before names in messages.
    """

    SECTION: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for option in fields(self):
            value, default, check = getattr(self, option.name), option.default, option.metadata
            if value is None and default is None:
                continue
            name = dotted(self.SECTION, option.name)
            check_kind(name, value, check.get("example", default))
            if "accepts" in check:
                each = isinstance(value, tuple | list) and not check["whole"]
                parts = value if each else (value,)
                if not all(map(check["accepts"], parts)):
                    raise ValueError(f"{name} {check['requirement']}, got {value!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Returns the options with these values, and defaults where there are none."""
        check_options("the config", values, [option.name for option in fields(cls)], cls.SECTION)
        return cls(**values)


class Described(NamedTuple):
    """An option as people read of it."""

    default: Any  # or the value that a config has
    allowed: str  # "" if its default says it all
    text: str  # one line, "" if there is none


def describe(options: Any) -> dict[str, Described]:
    """Returns, by name, what a dataclass and its docstrings say about each field."""
    texts: dict[str, str] = {}
    for owner in reversed(type(options).__mro__):
        words = inspect.getdoc(owner) or ""
        entries = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", words, re.MULTILINE)
        texts |= {name: " ".join(words.split()) for name, words in entries}
    described = {}
    for option in fields(options):
        value = getattr(options, option.name)
        usual = "True or False" if isinstance(value, bool) else ""
        requirement = option.metadata.get("requirement", usual)
        allowed = re.sub(r"^must (not )?be ", r"\1", requirement)
        described[option.name] = Described(value, allowed, texts.get(option.name, ""))
    return described
