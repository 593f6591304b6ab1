"""Capsule networks in JAX: routing procedures, layers, models, training, data."""

from typing import Any

from capsjax import data, functional, layers, losses, models, routing
from capsjax._version import __version__

__all__ = ["__version__", "data", "functional", "layers", "losses", "models", "restore", "routing"]


def __getattr__(name: str) -> Any:
    # Orbax and optax take seconds to import: only for those who restore.
    if name == "restore":
        from capsjax.training.checkpoints import restore

        return restore
    raise AttributeError(f"module 'capsjax' has no attribute {name!r}")
