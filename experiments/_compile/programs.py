"""The programs of a run as training and evaluation drive them, lowered from shapes alone.

What they are made of is real (the network, the recipe, the order of an epoch, the loop over the
steps of a dispatch); only the images are blank, since a program does not depend on them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import ml_collections
import numpy as np
from _benchmark.setup import training as put_together

from capsjax.data import load, tasks
from capsjax.data.dataset import Dataset
from capsjax.data.stored import DEVICE_BUDGET_MB, Stored
from capsjax.data.tasks import EvaluationSet, Task
from capsjax.training.parallel import check_batch_size, lower, on_devices
from capsjax.training.setup import MAX_STEPS_PER_DISPATCH
from capsjax.training.state import split
from capsjax.training.step import Batches, evaluate_batch

# A batch of evaluation, on each device: experiments/evaluate.py.
EVALUATED = 128
# Images of the training and test split, their shape, and the number of classes.
PUBLISHED = {
    "mnist": (60_000, 10_000, (28, 28, 1), 10),
    "fashion_mnist": (60_000, 10_000, (28, 28, 1), 10),
    "cifar10": (50_000, 10_000, (32, 32, 3), 10),
    "cifar100": (50_000, 10_000, (32, 32, 3), 100),
}

Lower = Callable[[], jax.stages.Lowered]


def blank(name: str, split: str) -> Dataset:
    """A data set with the shapes of `name` and nothing in its images; others are loaded."""
    if name not in PUBLISHED:
        return load(name, split, device_budget_mb=DEVICE_BUDGET_MB)
    num_train, num_test, shape, num_classes = PUBLISHED[name]
    number = {"train": num_train, "test": num_test}[split]
    labels = np.arange(number, dtype=np.int32) % num_classes
    names = tuple(map(str, range(num_classes)))
    return Dataset(np.zeros((number, *shape), np.uint8), labels, names, name, split)


def programs(
    config: ml_collections.ConfigDict, devices: Sequence[Any], *, evaluate: bool = False
) -> dict[str, Lower]:
    """The programs of a run of `config` on `devices` by name: "training", "validation".

    Args:
      config: of the run.
      devices: all of them; they need not exist.
      evaluate: also "evaluation", of the task's test set with 128 images on each device.

    Raises:
      ValueError: the devices cannot share a batch, or the config does not fit its data.
    """
    check_batch_size(config.training.batch_size, len(devices))
    task = tasks.create(**config.data, read=blank)
    if isinstance(task.train.images, Stored):
        raise ValueError(
            f"{config.data.name} has {task.train.images.nbytes / 1e6:,.0f} MB of images, which "
            "training feeds from the host: only runs with their images on the devices are compiled"
        )
    batch_size = config.training.batch_size
    setup = put_together(
        config, task, batch_size=batch_size, devices=devices, capacity=MAX_STEPS_PER_DISPATCH
    )
    # As at a checkpoint: in evaluation, whatever the mode in which the network is trained.
    setup.model.eval()
    graphdef, params, rest = split(setup.model)
    variables = _shapes((params, rest))
    score = partial(_scoring, graphdef, variables, devices)
    precision = config.training.matmul_precision
    found = {"training": partial(_training, setup, task, devices)}
    if len(task.validation):
        found["validation"] = partial(score, task.validation, batch_size)
    if evaluate:
        test = task.evaluation_set(next(iter(task.tests)))
        found["evaluation"] = partial(score, test, EVALUATED * len(devices))
    return {name: partial(_with_precision, precision, lower) for name, lower in found.items()}


def batch_sizes(config: ml_collections.ConfigDict, devices: Sequence[Any]) -> dict[str, int]:
    """The images that all devices do together, by the name of the program."""
    own = config.training.batch_size
    return {"training": own, "validation": own, "evaluation": EVALUATED * len(devices)}


def num_examples(config: ml_collections.ConfigDict) -> int:
    """The images that there are to train on."""
    return len(tasks.create(**config.data, read=blank).train.labels)


def _with_precision(precision: str, lower: Lower) -> jax.stages.Lowered:
    with jax.default_matmul_precision(precision):
        return lower()


def _training(setup: Any, task: Task, devices: Sequence[Any]) -> jax.stages.Lowered:
    dispatch = on_devices(setup.run_steps, devices, 5, donate=(0,), divided=(4,))
    key = jax.eval_shape(lambda: jax.random.key(0))
    count = jax.ShapeDtypeStruct((), np.int32)
    return lower(dispatch, devices, _shapes(setup.state), _shapes(task.train), key, count, None)


def _scoring(
    graphdef: Any,
    variables: Any,
    devices: Sequence[Any],
    examples: EvaluationSet,
    batch_size: int,
) -> jax.stages.Lowered:
    num_devices = len(devices)
    rounded_up = -(-len(examples) // num_devices) * num_devices
    batches = Batches(len(examples), min(batch_size, rounded_up), num_devices)
    program = partial(evaluate_batch, graphdef=graphdef, examples=examples, batches=batches)
    run = on_devices(program, devices, 5, divided=(4,))
    number = jax.ShapeDtypeStruct((), np.int32)
    return lower(run, devices, *variables, _shapes(examples.arrays), number, None)


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
