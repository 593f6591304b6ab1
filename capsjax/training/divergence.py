"""Where the first non-finite number comes from: the step is computed once more, in parts."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, PRNGKeyArray

from capsjax.data.tasks import Task
from capsjax.models import paths
from capsjax.training.state import DEVICES, TrainState
from capsjax.training.step import Batches, DeviceSource, drawing, forward

# By the name of what a step reads or computes: whether all its numbers are finite. JAX would bring
# the keys of a plain dict into alphabetical order.
Parts = OrderedDict[str, Bool[Array, ""]]


def examine(
    state: TrainState,
    source: DeviceSource,
    key: PRNGKeyArray,
    *,
    task: Task,
    batches: Batches,
    **of_forward: Any,
) -> Parts:
    """Recomputes the step after `state` in parts, on the batch that `run_steps` would draw.

    The parts are in the order in which a step needs them: variables, what the network computes,
    gradients.
    """
    draw = drawing(state.step, source, key, task=task, batches=batches)
    batch, keys = draw(state.step)

    def loss_and_parts(params):
        loss, (output, metrics, _) = forward(
            params, state.rest, batch, keys, capture=True, **of_forward
        )
        layers = {f"'{name}'": features for name, features in output.features.items()}
        metrics = {f"the metric '{name}'": metric for name, metric in metrics.items()}
        return loss, _finite({"the images": batch.image} | layers | metrics)

    gradients, outputs = jax.grad(loss_and_parts, has_aux=True)(state.params)
    gradients = paths.by_path(lax.pmean(gradients, DEVICES))
    variables = paths.by_path(state.params) | paths.by_path(state.rest)
    parts = (
        _finite({f"the variable '{path}' before the step": x for path, x in variables.items()})
        | outputs
        | _finite({f"the gradient of '{path}'": x for path, x in gradients.items()})
    )
    return jax.tree.map(lambda finite: lax.pmin(finite.astype(jnp.int32), DEVICES) > 0, parts)


def describe(parts: Mapping[str, Any]) -> str:
    for name, finite in parts.items():
        if not finite:
            return f"the first numbers that are not finite are those of {name}"
    return "computed once more, all of that step is finite: a number at the edge of float32"


def _finite(arrays: dict[str, Array]) -> Parts:
    return OrderedDict((name, jnp.all(jnp.isfinite(array))) for name, array in arrays.items())
