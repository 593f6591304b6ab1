"""Options, each declared once: as a field of a frozen dataclass.

The field has the name, the type, the default and the allowed values; a line under "Attributes:" in
the docstring of its class documents it.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

from capsjax._names import check_kind, check_options


def checked(
    default: Any,
    accepts: Callable[[Any], bool],
    requirement: str,
    *,
    element: Any = 1,
    whole: bool = False,
) -> Any:
    """Returns a field whose value, or each element of a tuple, must be one that `accepts` accepts.

    Args:
      default: tells the kind of the value; None if it may be None or an integer.
      accepts: of values of that kind.
      requirement: what a message says after the name, such as "must be positive".
      element: a value of the kind of a tuple's elements.
      whole: whether `accepts` takes a tuple as one.
    """
    check = {"accepts": accepts, "requirement": requirement, "element": element, "whole": whole}
    return field(default=default, metadata=check)


def positive(default: Any) -> Any:
    """Returns a field for a number, or a tuple of integers, greater than 0.

    If the default is None, the value may be None or an integer.
    """
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
    return checked((), lambda value: value != "", "must not be empty", element="")


@dataclass(frozen=True)
class Options:
    """The base class of options; raises ValueError for a value that a field does not allow.

    `SECTION` is the part of a config that a class declares, and stands before names in messages.
    """

    SECTION: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for option in fields(self):
            value, default = getattr(self, option.name), option.default
            if value is None and default is None:
                continue
            name, check = dotted(self.SECTION, option.name), option.metadata
            check_kind(name, value, 1 if default is None else default)
            if "accepts" not in check:
                continue
            is_tuple = isinstance(value, tuple) and not check["whole"]
            for part in value if is_tuple else (value,):
                if is_tuple:
                    check_kind(f"each of {name}", part, check["element"])
                if not check["accepts"](part):
                    raise ValueError(f"{name} {check['requirement']}, got {value!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Returns the options with these values, and defaults where there are none.

        Raises:
          ValueError: an unknown option (the nearest is named) or a value that is not allowed.
        """
        check_known(cls.SECTION, values, [option.name for option in fields(cls)])
        return cls(**values)


def check_known(section: str, options: Mapping[str, Any], known: list[str]) -> None:
    """Raises ValueError for an option that a section does not have; the nearest is named."""
    full = [[dotted(section, name) for name in names] for names in (options, known)]
    check_options("the config", *full)


def dotted(section: str, name: str) -> str:
    """Returns the name of an option in a config."""
    return f"{section}.{name}" if section else name


class Described(NamedTuple):
    """An option as people read of it."""

    default: Any  # or the value that a config has
    allowed: str  # "" if its default says it all
    text: str  # one line, "" if there is none


def describe(options: Any) -> dict[str, Described]:
    """Returns, by name, what a dataclass and its docstrings say about each field."""
    texts: dict[str, str] = {}
    for owner in reversed(type(options).__mro__):
        attributes = re.search(
            r"^Attributes[^\n]*:\n(.*)", inspect.getdoc(owner) or "", re.M | re.S
        )
        for name, words in re.findall(
            r"^  (\w+): (.*(?:\n    .*)*)", attributes[1] if attributes else "", re.M
        ):
            texts[name] = re.sub(r"\s+", " ", words)
    return {
        option.name: Described(value, _allowed(option, value), texts.get(option.name, ""))
        for option in fields(options)
        for value in [getattr(options, option.name)]
    }


def _allowed(option: Field, value: Any) -> str:
    usual = "True or False" if isinstance(value, bool) else ""
    requirement = option.metadata.get("requirement", usual)
    return re.sub(r"^must (not )?be ", r"\1", requirement)
