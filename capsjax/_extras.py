"""Packages that only a part of the library needs: setup.cfg has them as extras."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """A context for optional imports: if one is missing, the error names the extra to install.

    Args:
      name: of the extra in setup.cfg.

    Raises:
      ModuleNotFoundError: in place of Python's own, with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install 'capsjax[{name}]', or in a clone "
            f"pip install '.[{name}]'",
            name=error.name,
        ) from error
