"""Modules of a package that are imported when they are first used."""

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Returns a `__getattr__` for `package`: `import capsjax` is enough for `capsjax.runs.loop`."""

    def __getattr__(name: str) -> ModuleType:
        # Python itself asks packages for names like __path__.
        if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    return __getattr__
