"""Tasks by name: `create("multimnist")` gives what to train on and what to test on."""

import os
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

from capsjax._nearest import nearest
from capsjax.data.sources import load
from capsjax.data.tasks.affnist import AffNIST, Translated
from capsjax.data.tasks.classification import Classification
from capsjax.data.tasks.multimnist import DiverseMultiMNIST, MultiMNIST, TransferA, TransferB
from capsjax.data.tasks.parts import Reader, as_it_is
from capsjax.data.tasks.rendering import Rendered, render, spread
from capsjax.data.tasks.task import (
    EACH,
    Arrays,
    EvaluationSet,
    Example,
    Objects,
    Present,
    Recipe,
    Task,
    take,
)

__all__ = [
    "EACH",
    "Arrays",
    "EvaluationSet",
    "Example",
    "Objects",
    "Present",
    "Recipe",
    "Rendered",
    "Task",
    "as_it_is",
    "create",
    "generated",
    "options",
    "render",
    "spread",
    "take",
]

Family = Classification | Translated | AffNIST | MultiMNIST | DiverseMultiMNIST

_GENERATED: dict[str, Family] = {
    "mnist_translated": Translated(),
    "affnist_generated": AffNIST(),
    "multimnist": MultiMNIST(),
    "multimnist_a": TransferA(),
    "multimnist_b": TransferB(),
    "diverse_multimnist": DiverseMultiMNIST(),
}


def generated() -> tuple[str, ...]:
    """The tasks whose images are made from another set's; every set is a task of its own name."""
    return tuple(_GENERATED)


def options(name: str) -> dict[str, Any]:
    """Every option of the task `name` with its default."""
    return asdict(_family(name))


def create(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device_budget_mb: float | None = None,
    read: Reader | None = None,
    **overrides: Any,
) -> Task:
    """What to train and test on.

    Args:
      name: one of `generated()`, or any name that `capsjax.data.load` takes.
      data_dir, device_budget_mb: as for `capsjax.data.load`.
      read: a function from the names of a source and of a split to the data set, in place of
        `capsjax.data.load`.
      **overrides: options of the task, see `options(name)`; their classes in this package say
        what they mean.

    Raises:
      ValueError: unknown option (the nearest is named) or a value out of range; and what
        `capsjax.data.load` raises.
    """
    family = _family(name)
    known = [field.name for field in fields(family)]
    for key in overrides:
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}: {nearest(key, known)}")
    read = read or partial(load, data_dir=data_dir, device_budget_mb=device_budget_mb)
    return replace(family, **overrides).build(name, read)


def _family(name: str) -> Family:
    return _GENERATED.get(name, Classification())
