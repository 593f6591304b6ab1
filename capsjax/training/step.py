"""One update, and many of them in one dispatch: pure functions of one device.

Collectives run over the named axis `DEVICES`; only `parallel` knows how devices get it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, Shaped, UInt8

from capsjax.data.tasks import Example, Task, make_example
from capsjax.models import Output
from capsjax.training.objective import Metrics, Objective
from capsjax.training.state import DEVICES, TrainState

Number = Int[Array, ""]
Keys = Key[Array, "local"]  # one for each example of a device, for the model's dropout

# Folded into a seed's key. Parameters, which fold in 0, 1, …, never come so far.
_RUN = 2**32 - 1


def forward(
    params: nnx.State,
    rest: nnx.State,
    batch: Example,
    keys: Keys,
    *,
    graphdef: nnx.GraphDef,
    objective: Objective,
    compute_dtype: DTypeLike = jnp.float32,
    capture: bool = False,
) -> tuple[Float[Array, ""], tuple[Output, Metrics, nnx.State]]:
    """Returns the loss on this device's part of the batch, and (output, metrics, new `rest`).

    The network computes in `compute_dtype`; parameters, their gradients, routing's logits and the
    loss stay in float32.
    """
    narrow = jax.tree.map(lambda x: x.astype(compute_dtype), params)
    # Without copy=True a running statistic's update would leak out of the gradient's trace.
    model = nnx.merge(graphdef, narrow, rest, copy=True)
    images = batch.image.astype(compute_dtype)
    output = model(images, mask=batch.objects.labels, keys=keys, capture=capture)
    loss, metrics = objective(output, batch)
    return loss, (output, metrics, nnx.state(model, nnx.Not(nnx.Param)))


def update(
    state: TrainState,
    batch: Example,
    keys: Keys,
    *,
    optimizer: optax.GradientTransformation,
    **of_forward: Any,
) -> tuple[TrainState, Metrics]:
    """Does one step on this device's part of the batch; averages what differs between devices."""
    loss = partial(forward, **of_forward)
    compute = jax.grad(loss, has_aux=True)
    grads, (_, metrics, own_rest) = compute(state.params, state.rest, batch, keys)
    grads, metrics = lax.pmean((grads, metrics), DEVICES)
    rest = jax.tree.map(_agree, own_rest)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics["gradient_norm"] = optax.tree.norm(grads)
    return TrainState(state.step + 1, params, rest, opt_state), metrics


def _agree(own: Array) -> Array:
    """Averages a variable over the devices; integers, such as counts, are the same on all."""
    reduce = lax.pmean if jnp.issubdtype(own.dtype, jnp.inexact) else lax.pmax
    return reduce(own, DEVICES)


class Batches(NamedTuple):
    """How a global batch is cut out of an epoch and divided over the devices.

    An epoch is a random order of the training examples; those at its end that do not fill a batch
    are left out. If images have several `versions`, epoch e shows version e mod `versions`.
    """

    num_examples: int
    batch_size: int
    num_devices: int
    versions: int = 1

    @property
    def per_epoch(self) -> int:
        return self.num_examples // self.batch_size

    def order(self, key: PRNGKeyArray, epoch: Number) -> Int[Array, "examples"]:
        """Returns the order of an epoch, counted from 0."""
        order = jax.random.permutation(jax.random.fold_in(key, epoch), self.num_examples)
        return order + epoch % self.versions * self.num_examples

    def places(self, step: Any, slots: Any) -> Any:
        """Returns the places of a step's examples in the epoch's order, for arrays of any kind."""
        return step % self.per_epoch * self.batch_size + slots

    def slots_of(self, device: Number | int) -> Int[Array, "local"]:
        """Returns the places in the global batch that belong to device number `device`."""
        local = self.batch_size // self.num_devices
        return device * local + jnp.arange(local)


class DeviceSource(NamedTuple):
    """The source images on a device.

    Either all of them, flat, padded to a multiple of 128 (TPUs would copy others to a new layout);
    or, if they do not fit, those that this device's examples need in a few steps.
    """

    labels: Int[Array, "n"]  # of all source images
    images: UInt8[Array, "n pixels"] | UInt8[Array, "steps local k h w c"]
    first: Number | Int[np.ndarray, ""]  # the number of the first of those steps


def run_key(seed: int, version: int) -> PRNGKeyArray:
    """Makes the key of a run's order and examples; in version 1 parameters came from it too."""
    key = jax.random.key(seed, impl="threefry2x32")  # the same numbers on every platform
    return key if version == 1 else jax.random.fold_in(key, _RUN)


def example_keys(
    key: PRNGKeyArray, step: Number, slots: Int[Array, "*local"]
) -> tuple[Key[Array, "*local"], Key[Array, "*local"]]:
    """Makes two keys, for the data and for the model, for the example in each slot of a step.

    Slots count through the global batch, so examples do not depend on the number of devices.
    """
    of_step = jax.random.fold_in(key, step)
    keys = jax.vmap(lambda slot: jax.random.split(jax.random.fold_in(of_step, slot)))(slots)
    for_data, for_model = jnp.unstack(keys, axis=1)
    return for_data, for_model


def drawing(
    first: Number, source: DeviceSource, key: PRNGKeyArray, *, task: Task, batches: Batches
) -> Callable[[Number], tuple[Example, Keys]]:
    """Returns a function that makes a step's examples and model keys, in the epoch of `first`."""
    order_key, example_key = jax.random.split(key)
    order = batches.order(order_key, first // batches.per_epoch)
    slots = batches.slots_of(lax.axis_index(DEVICES))

    def draw(step: Number) -> tuple[Example, Keys]:
        for_data, for_model = example_keys(example_key, step, slots)
        indices = order[batches.places(step, slots)]
        choose = jax.vmap(task.recipe.choose, in_axes=(0, None, 0))
        chosen = choose(for_data, source.labels, indices)
        if source.images.ndim == 2:
            shape = (*chosen.shape, *task.train.images.shape[1:])
            images = source.images[chosen][..., : np.prod(shape[-3:])].reshape(shape)
        else:
            images = source.images[step - source.first]
        make = jax.vmap(partial(make_example, task.recipe))
        return make(for_data, indices, images, source.labels[chosen]), for_model

    return draw


def run_steps(
    state: TrainState,
    source: DeviceSource,
    key: PRNGKeyArray,
    count: Number,
    *,
    task: Task,
    batches: Batches,
    update: Callable[[TrainState, Example, Keys], tuple[TrainState, Metrics]],
    capacity: int,
) -> tuple[TrainState, dict[str, Shaped[Array, "capacity *metric"]]]:
    """Does `count` steps of one epoch in one program; returns each step's metrics.

    The loop's length is an argument: the same executable runs whatever the number of steps, so
    where a run was interrupted cannot change its numbers. (A `lax.scan` would be compiled again for
    each length, and each program may round differently.) The metrics have `capacity` entries, zeros
    from `count` on. A step whose metrics are not all finite does not change the state.
    """
    draw = drawing(state.step, source, key, task=task, batches=batches)

    @partial(jax.jit, inline=True)  # traced once: for its shapes, and for the loop
    def step(state):
        new, metrics = update(state, *draw(state.step))
        # The state before a step that is not finite stays, for a closer look at that step.
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(m)) for m in metrics.values()]))
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state), metrics

    def body(i, carry):
        state, metrics = step(carry[0])
        record = jax.tree.map(lambda values, value: values.at[i].set(value), carry[1], metrics)
        return state, record

    _, metrics = jax.eval_shape(step, state)
    record = jax.tree.map(lambda m: jnp.zeros((capacity, *m.shape), m.dtype), metrics)
    return lax.fori_loop(0, count, body, (state, record))
