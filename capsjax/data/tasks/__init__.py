"""Tasks by name: `create("multimnist")` gives what to train on and what to test on."""

import os
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

from capsjax._names import check_options
from capsjax.data.sources import load
from capsjax.data.tasks.one_object import (
    AffNIST,
    Classification,
    DistortedTask,
    OwnImages,
    Translated,
)
from capsjax.data.tasks.one_object import as_it_is as as_it_is
from capsjax.data.tasks.overlaid import DiverseMultiMNIST, MultiMNIST, TransferA, TransferB
from capsjax.data.tasks.task import EvaluationSet as EvaluationSet
from capsjax.data.tasks.task import Example as Example
from capsjax.data.tasks.task import Family, Reader
from capsjax.data.tasks.task import NumberedExamples as NumberedExamples
from capsjax.data.tasks.task import Objects as Objects
from capsjax.data.tasks.task import Task as Task
from capsjax.data.tasks.task import make_example as make_example
from capsjax.data.tasks.task import render as render
from capsjax.data.tasks.task import spread as spread
from capsjax.data.tasks.tetrominoes import Tetrominoes

_GENERATED: dict[str, Family | Tetrominoes] = {
    "mnist_distorted": DistortedTask(),
    "mnist_translated": Translated(),
    "affnist_generated": AffNIST(),
    "multimnist": MultiMNIST(),
    "multimnist_a": TransferA(),
    "multimnist_b": TransferB(),
    "diverse_multimnist": DiverseMultiMNIST(),
    "tetrominoes": Tetrominoes(),
}


def generated() -> tuple[str, ...]:
    """Returns the tasks whose images are generated; every data set is also a task."""
    return tuple(_GENERATED)


def options(name: str) -> dict[str, Any]:
    """Returns every option of the task `name` with its default."""
    return asdict(family(name))


def create(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device_budget_mb: float | None = None,
    read: Reader | None = None,
    **overrides: Any,
) -> Task:
    """Creates a task: what to train and test on.

    Args:
      name: one of `generated()`, or any name that `capsjax.data.load` takes.
      data_dir, device_budget_mb: as for `capsjax.data.load`.
      read: used in place of `capsjax.data.load`, called with the names of a source and a split.
      **overrides: see `options(name)`; they are documented in the task's class in this package.
    """
    own = family(name)
    check_options(name, overrides, [field.name for field in fields(own)])
    read = read or partial(load, data_dir=data_dir, device_budget_mb=device_budget_mb)
    return replace(own, **overrides).build(name, read)


def family(name: str) -> Family | Tetrominoes:
    """Returns the kind of the task `name`, with the defaults of its options."""
    return _GENERATED.get(name, OwnImages() if name.startswith("folder:") else Classification())
