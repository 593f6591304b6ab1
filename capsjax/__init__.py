"""Capsule networks in JAX: routing procedures, layers, models, training, data."""

from typing import TYPE_CHECKING, Any

from capsjax._lazy import modules_of
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
        from capsjax.runs.checkpoints import restore

        return restore
    return modules_of(__name__)[0](name)
