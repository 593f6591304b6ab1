"""Modules of a package that are imported when they are first used."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from types import ModuleType


def modules_of(package: str) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__`: `import capsjax` is enough for `capsjax.runs.loop`."""

    def __getattr__(name: str) -> ModuleType:
        # Python itself asks packages for names like __path__.
        if name.startswith("_") or importlib.util.find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    def __dir__() -> list[str]:
        module = sys.modules[package]
        return [*{*vars(module), *(found.name for found in pkgutil.iter_modules(module.__path__))}]

    return __getattr__, __dir__
