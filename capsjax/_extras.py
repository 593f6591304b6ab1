"""Packages that only a part of the library needs: setup.cfg has them as extras."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install(name: str) -> str:
    """Returns the command that installs the extra `name` from where this capsjax came from."""
    clone = Path(__file__).parents[1]
    if (clone / "setup.cfg").exists():
        return f"pip install --editable '{clone}[{name}]'"
    # What pip installed from, unless that is the package index.
    source = json.loads(distribution("capsjax").read_text("direct_url.json") or "{}")
    if "dir_info" in source:
        return f"pip install '{url2pathname(urlsplit(source['url']).path)}[{name}]'"
    if "vcs_info" in source:
        return f"pip install 'capsjax[{name}] @ {source['vcs_info']['vcs']}+{source['url']}'"
    return f"pip install 'capsjax[{name}]{' @ ' if source else ''}{source.get('url', '')}'"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wraps optional imports: if one is missing, the error names the extra to install.

    Args:
      name: of the extra in setup.cfg.

    Raises:
      ModuleNotFoundError: in place of Python's own, with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: {install(name)}", name=error.name
        ) from error
