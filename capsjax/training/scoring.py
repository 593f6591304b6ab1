"""A restored network on a data set or on the evaluation set of a task."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from jaxtyping import Float

from capsjax.data import load, tasks
from capsjax.data.accuracy import Rule, top
from capsjax.data.stored import DEVICE_BUDGET_MB
from capsjax.training import evaluation
from capsjax.training.checkpoints import Checkpoint
from capsjax.training.parallel import check_batch_size, replicate
from capsjax.training.state import split


class EvaluationData(NamedTuple):
    """What a network is evaluated on.

    Attributes:
      name: of the data set or the task.
      split: of the data set, or the name of the task's evaluation set.
      class_names: in the order of the labels.
      examples: all of it.
      rule: from scores to the classes that they name.
      multi_label: whether an image may show several classes.
    """

    name: str
    split: str
    class_names: tuple[str, ...]
    examples: tasks.EvaluationSet
    rule: Rule
    multi_label: bool

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels."""
        return self.examples.recipe.image_shape(self.examples.arrays.images.shape[1:])


def evaluation_data(
    config: ml_collections.ConfigDict,
    name: str | None,
    split: str,
    data_dir: str | os.PathLike[str] | None = None,
    device_budget_mb: float | None = DEVICE_BUDGET_MB,
) -> EvaluationData:
    """The split of a data set, unchanged, or the evaluation set of a generated task.

    Args:
      config: of the network.
      name: of the set or task; None for the one that the network was trained on.
      split: of the set, or the name of an evaluation set of the task.
      data_dir: as for `capsjax.data.load`.
      device_budget_mb: as for `capsjax.training.loop.train`.

    Raises:
      ValueError, FileNotFoundError: what `tasks.create`, `evaluation_set` and `load` raise.
    """
    name = name or config.data.name
    if name not in tasks.generated():
        dataset = load(name, split, data_dir, device_budget_mb=device_budget_mb)
        examples = tasks.as_it_is(dataset)
        return EvaluationData(name, split, dataset.class_names, examples, top(1), False)
    own = dict(config.data) if name == config.data.name else {"name": name}
    task = tasks.create(**own, data_dir=data_dir, device_budget_mb=device_budget_mb)
    examples = task.evaluation_set(split)
    return EvaluationData(name, split, task.class_names, examples, task.rule, task.multi_label)


def score(
    checkpoint: Checkpoint,
    data: EvaluationData,
    *,
    batch_size: int,
    devices: Sequence[jax.Device],
    progress: Callable[[int], None] = lambda done: None,
) -> Float[np.ndarray, "n classes"]:
    """The class scores of every image, in order; each batch is divided over `devices`.

    Raises:
      ValueError: the data set does not fit the network, or the batch size the devices.
    """
    check_fits(checkpoint.config, data)
    check_batch_size(batch_size, len(devices))
    graphdef, params, rest = split(checkpoint.model)
    scores = evaluation.scorer(
        graphdef, data.examples, batch_size=batch_size, devices=devices, progress=progress
    )
    return scores(replicate(params, devices), replicate(rest, devices))


def check_fits(config: ml_collections.ConfigDict, data: EvaluationData) -> None:
    """Raises ValueError unless the network of `config` takes these images and tells these classes.

    Classes are compared by name: scores on other classes, even if as many, would mean nothing.
    """
    takes, has = tuple(config.task.input_shape), data.image_shape
    if takes != has:
        raise ValueError(
            f"{data.name} has images of {_size(has)}, this network takes {_size(takes)} (height "
            f"× width × channels): choose a data set of that size, such as the {config.data.name} "
            f"it was trained on, or train a network on {data.name}"
        )
    tells, asked = tuple(config.task.class_names), data.class_names
    if tells != asked:
        raise ValueError(
            f"{data.name} has the classes {_listed(asked)}, this network tells {_listed(tells)}:"
            f" choose a data set with the classes of {config.data.name}, which it was trained on, "
            f"or train a network on {data.name}"
        )


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _listed(names: tuple[str, ...], show: int = 5) -> str:
    first = ", ".join(names[:show])
    return f"{first}, … ({len(names)})" if len(names) > show else f"{first} ({len(names)})"
