"""Where the first non-finite number comes from: the step is computed once more, in parts."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, PRNGKeyArray

from capsjax.data.tasks import Task
from capsjax.models import paths
from capsjax.training.state import DEVICES, TrainState
from capsjax.training.step import Batches, DeviceSource, drawing, forward


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Part:
    """Something that a step reads or computes, and whether all its numbers are finite."""

    # Part of the structure: a dict would come out of jax.grad in the order of its keys.
    name: str = field(metadata={"static": True})
    finite: Bool[Array, ""]


def examine(
    state: TrainState,
    source: DeviceSource,
    key: PRNGKeyArray,
    *,
    task: Task,
    batches: Batches,
    **of_forward: Any,
) -> list[Part]:
    """Recomputes the step after `state` in parts, on the batch that `run_steps` would draw.

    A pure function of one device, like those in `step`, and with the options of `step.forward`; a
    part is finite if it is on all devices. They come in the order in which a step needs them:
    variables, what the network computes, gradients.
    """
    draw = drawing(state.step, source, key, task=task, batches=batches)
    batch, keys = draw(state.step)

    def loss_and_parts(params):
        loss, (output, metrics, _) = forward(
            params, state.rest, batch, keys, capture=True, **of_forward
        )
        layers = {f"'{name}'": features for name, features in output.features.items()}
        metrics = {f"the metric '{name}'": metric for name, metric in metrics.items()}
        return loss, _parts({"the images": batch.image} | layers | metrics)

    gradients, outputs = jax.grad(loss_and_parts, has_aux=True)(state.params)
    gradients = paths.by_path(lax.pmean(gradients, DEVICES))
    variables = paths.by_path(state.params) | paths.by_path(state.rest)
    parts = [
        *_parts({f"the variable '{path}' before the step": x for path, x in variables.items()}),
        *outputs,
        *_parts({f"the gradient of '{path}'": x for path, x in gradients.items()}),
    ]
    return jax.tree.map(lambda finite: lax.pmin(finite.astype(jnp.int32), DEVICES) > 0, parts)


def describe(parts: list[Part]) -> str:
    """Returns in words where the first number that is not finite appeared."""
    broken = [part.name for part in parts if not part.finite]
    if not broken:
        return "computed once more, all of that step is finite: a number at the edge of float32"
    return f"the first numbers that are not finite are those of {broken[0]}"


def _parts(arrays: dict[str, Array]) -> list[Part]:
    return [Part(name, jnp.all(jnp.isfinite(array))) for name, array in arrays.items()]
