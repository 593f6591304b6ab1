"""Packages that only a part of the library needs: setup.cfg has them as extras."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def install(name: str) -> str:
    """Returns how to install the extra `name`."""
    clone = Path(__file__).parents[1]
    if (clone / "setup.cfg").exists():
        return f"pip install --editable '{clone}[{name}]'"
    return f"pip install '.[{name}]' in a clone of capsjax"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wraps optional imports: if one is missing, the error names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: {install(name)}", name=error.name
        ) from error
