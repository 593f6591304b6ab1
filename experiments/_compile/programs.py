"""The programs of a run as training drives them, and of routing procedures.

They are lowered from shapes alone. What those of a run are made of is real (the network, the
recipe, the order of an epoch, the loop over the steps of a dispatch); only the images are blank.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from _benchmark.measure import with_gradient
from _benchmark.routing import NO_BUDGET, ROWS

from capsjax.data import load, tasks
from capsjax.data.dataset import Dataset
from capsjax.data.lazy_images import DEVICE_BUDGET_MB
from capsjax.evaluation.scoring import lower_score
from capsjax.routing import LinearVotes, slot_attention, uniform_routing
from capsjax.training.build import Training, abstract_model, build
from capsjax.training.feed import flat_size, is_streamed
from capsjax.training.step import DeviceSource

# Images of the training and test split, their shape, and the number of classes.
PUBLISHED = {
    "mnist": (60_000, 10_000, (28, 28, 1), 10),
    "fashion_mnist": (60_000, 10_000, (28, 28, 1), 10),
    "cifar10": (50_000, 10_000, (32, 32, 3), 10),
    "cifar100": (50_000, 10_000, (32, 32, 3), 100),
}
# Procedures at the sizes of rows of `experiments/benchmark.py routing`; uniform routing has none.
PROCEDURES = {
    "dynamic": "a",
    "inverted_attention": "b",
    "em": "c",
    "attention": "d",
    "dynamic_large": "e",
    "uniform": "a",
}
# Three iterations of slot attention: examples, inputs N, their size D (that of slots too), slots J.
SLOTS = {"slots_7": (64, 16_384, 64, 7), "slots_11": (32, 4096, 64, 11)}
PLAIN = "_plain"  # after these names: the published formulas, which form keys and values

Lower = Callable[[], jax.stages.Lowered]


def blank(name: str, split: str, **options: Any) -> Dataset:
    """Returns a data set with the shapes of `name` and nothing in its images; others are loaded."""
    if name not in PUBLISHED:
        return load(name, split, device_budget_mb=DEVICE_BUDGET_MB, **options)
    num_train, num_test, shape, num_classes = PUBLISHED[name]
    number = {"train": num_train, "test": num_test}[split]
    labels = np.arange(number, dtype=np.int32) % num_classes
    names = tuple(map(str, range(num_classes)))
    return Dataset(np.zeros((number, *shape), np.uint8), labels, names, name, split)


def programs(config: ml_collections.ConfigDict, devices: Sequence[Any]) -> dict[str, Lower]:
    """Returns training, and validation if images are held out, on `devices`."""
    task = tasks.create(**config.data, read=blank)
    if is_streamed(task):
        raise ValueError(
            f"{config.data.name} has {task.train.images.nbytes / 1e6:,.0f} MB of images, which "
            "training feeds from the host: only runs with their images on the devices are compiled"
        )
    setup = build(config, task, devices)
    programs: dict[str, Lower] = {"training": partial(_training, setup)}
    if len(task.validation):
        model, size = abstract_model(setup.config), config.training.batch_size
        score = partial(lower_score, model, task.validation, batch_size=size, devices=devices)
        programs["validation"] = score
    with_precision = jax.default_matmul_precision(config.training.matmul_precision)
    return {name: with_precision(lower) for name, lower in programs.items()}


def _training(setup: Training) -> jax.stages.Lowered:
    images, labels = setup.task.train

    def arguments() -> tuple[Any, ...]:
        flat = jnp.zeros((len(images), flat_size(images.shape[1:])), images.dtype)
        source = DeviceSource(labels, flat, np.int32(0))
        return setup.init_state(), source, jax.random.key(0), np.int32(0)

    return setup.dispatch().lower(*jax.eval_shape(arguments))


def procedure(name: str, *, gradient: bool) -> tuple[Callable[..., Any], tuple[Any, ...], int]:
    """Returns a function, or the gradient of its loss, its arguments' shapes, and the examples.

    `name` is one of `PROCEDURES`, or of `SLOTS`, perhaps with `PLAIN` after it.
    """
    if name.removesuffix(PLAIN) in SLOTS:
        n, inputs, size, slots = SLOTS[name.removesuffix(PLAIN)]
        every = (n, inputs, size), (n, slots, size), (size, size), (size, size)
        shapes = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in every)
        function = _plain_slots if name.endswith(PLAIN) else _slots
    else:
        row = ROWS[PROCEDURES[name]](NO_BUDGET)
        shapes = jax.eval_shape(lambda: row.arguments)
        function = _uniform if name == "uniform" else row.capsjax
    if gradient:
        function = with_gradient(function, len(shapes))
    return function, shapes, shapes[0].shape[0]


def _uniform(poses: jax.Array, kernel: jax.Array) -> jax.Array:
    return uniform_routing(LinearVotes(poses, kernel)).poses


def _slots(x: jax.Array, q: jax.Array, w_k: jax.Array, w_v: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, q: slot_attention(x, q, w_k, w_v).poses, q)


def _plain_slots(x: jax.Array, q: jax.Array, w_k: jax.Array, w_v: jax.Array) -> jax.Array:
    keys, values = x @ w_k, x @ w_v  # [n, N, D]

    def iterate(_: int, q: jax.Array) -> jax.Array:
        logits = jnp.einsum("bjd,bnd->bjn", q / math.sqrt(q.shape[-1]), keys)
        shares = jax.nn.softmax(logits, axis=-2)
        shares /= jnp.sum(shares, axis=-1, keepdims=True) + 1e-8
        return jnp.einsum("bjn,bnd->bjd", shares, values)

    return jax.lax.fori_loop(0, 3, iterate, q)
