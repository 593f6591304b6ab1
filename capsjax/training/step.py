"""One update, and many of them in one dispatch: pure functions of one device.

Collectives run over the named axis `DEVICES`; `parallel` alone knows how that axis is driven.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from capsjax.data.tasks import Arrays, EvaluationSet, Example, Task
from capsjax.models import Output
from capsjax.training.objective import Metrics, Objective
from capsjax.training.state import TrainState

DEVICES = "devices"


def update(
    state: TrainState,
    batch: Example,
    keys: PRNGKeyArray,
    *,
    graphdef: nnx.GraphDef,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    compute_dtype: DTypeLike = jnp.float32,
) -> tuple[TrainState, Metrics]:
    """One step on this device's part of the batch; gradients and metrics are averaged.

    `keys` holds one key per example, for the model's dropout. The network computes in
    `compute_dtype`; parameters, their gradients, routing's logits and the loss stay in float32.
    """

    def loss_fn(params):
        # Without copy=True a running statistic's update would leak out of the gradient's trace.
        narrow = jax.tree.map(lambda x: x.astype(compute_dtype), params)
        model = nnx.merge(graphdef, narrow, state.rest, copy=True)
        images = batch.image.astype(compute_dtype)
        loss, metrics = objective(model(images, mask=batch.objects.labels, keys=keys), batch)
        return loss, (metrics, nnx.state(model, nnx.Not(nnx.Param)))

    grads, (metrics, rest) = jax.grad(loss_fn, has_aux=True)(state.params)
    grads, metrics = lax.pmean((grads, metrics), DEVICES)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics["gradient_norm"] = optax.tree.norm(grads)
    return TrainState(state.step + 1, params, rest, opt_state), metrics


class Batches(NamedTuple):
    """How a global batch is cut out of an epoch and divided over the devices.

    An epoch is a random order of the training examples, cut into batches; the few left over at
    its end (fewer than a batch) wait for another epoch's order.
    """

    num_examples: int
    batch_size: int
    num_devices: int

    @property
    def per_epoch(self) -> int:
        return self.num_examples // self.batch_size

    def order(self, key: PRNGKeyArray, step: Int[Array, ""]) -> Int[Array, "examples"]:
        """The order of the epoch that `step` belongs to."""
        return jax.random.permutation(
            jax.random.fold_in(key, step // self.per_epoch), self.num_examples
        )

    def slots(self) -> Int[Array, "local"]:
        """The places in the global batch that belong to this device."""
        local = self.batch_size // self.num_devices
        return lax.axis_index(DEVICES) * local + jnp.arange(local)


def run_steps(
    state: TrainState,
    arrays: Arrays,
    key: PRNGKeyArray,
    count: Int[Array, ""],
    *,
    task: Task,
    batches: Batches,
    update: Callable[[TrainState, Example, PRNGKeyArray], tuple[TrainState, Metrics]],
    capacity: int,
) -> tuple[TrainState, dict[str, Float[Array, "capacity"]]]:
    """`count` steps of one epoch in one program; returns each step's metrics.

    The loop's length is an argument of the program and not part of it: the same executable
    runs whatever the number of steps, so where a run was interrupted cannot change its numbers.
    (A `lax.scan` would be compiled anew for each length, and the compiler rounds differently
    for each.) The last `capacity - count` metrics are zeros.
    """
    order_key, example_key = jax.random.split(key)
    order = batches.order(order_key, state.step)
    slots = batches.slots()

    def draw(step):
        place = step % batches.per_epoch * batches.batch_size + slots
        indices = order[place]
        # By slot in the global batch, so that examples do not depend on the device count.
        keys = jax.vmap(partial(jax.random.fold_in, jax.random.fold_in(example_key, step)))(slots)
        for_data, for_model = jnp.unstack(jax.vmap(jax.random.split)(keys), axis=1)
        example = jax.vmap(task.training_example, in_axes=(0, None, 0))
        return example(for_data, arrays, indices), for_model

    def body(i, carry):
        state, record = carry
        state, metrics = update(state, *draw(state.step))
        return state, jax.tree.map(lambda all, one: all.at[i].set(one), record, metrics)

    _, metrics = jax.eval_shape(lambda s: update(s, *draw(s.step)), state)
    record = jax.tree.map(lambda m: jnp.zeros((capacity, *m.shape), m.dtype), metrics)
    return lax.fori_loop(0, count, body, (state, record))


def evaluate_batch(
    params: nnx.State,
    rest: nnx.State,
    arrays: Arrays,
    start: Int[Array, ""],
    *,
    graphdef: nnx.GraphDef,
    examples: EvaluationSet,
    batches: Batches,
) -> Float[Array, "batch classes"]:
    """The class scores of the batch that begins at `start`, each device doing its part.

    Beyond the end the last example is repeated; the caller drops those rows.
    """
    indices = jnp.minimum(start + batches.slots(), batches.num_examples - 1)
    batch = jax.vmap(examples.example, in_axes=(None, 0))(arrays, indices)
    output: Output = nnx.merge(graphdef, params, rest)(batch.image)
    return lax.all_gather(output.scores, DEVICES, tiled=True)
