"""Capsule networks in JAX: routing procedures, layers, models, training, data."""

import importlib
from typing import TYPE_CHECKING, Any

from capsjax._version import __version__

if TYPE_CHECKING:
    from capsjax import (
        data,
        evaluation,
        functional,
        layers,
        losses,
        models,
        routing,
        runs,
        training,
    )
    from capsjax.runs.checkpoints import restore

__all__ = [
    "__version__",
    "data",
    "evaluation",
    "functional",
    "layers",
    "losses",
    "models",
    "restore",
    "routing",
    "runs",
    "training",
]


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    # Each room is imported when it is first used: routing needs no Flax, loading data no Orbax.
    if name == "restore":
        return importlib.import_module("capsjax.runs.checkpoints").restore
    if name in __all__:
        return importlib.import_module(f"capsjax.{name}")
    raise AttributeError(f"module 'capsjax' has no attribute {name!r}")
