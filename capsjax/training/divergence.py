"""Where the first non-finite number comes from: the step is computed once more, in parts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, PRNGKeyArray

from capsjax.data.tasks import Task
from capsjax.models import Output
from capsjax.training.objective import Objective
from capsjax.training.state import DEVICES, TrainState
from capsjax.training.step import Batches, DeviceSource, drawing, forward

MOST_NAMES = 3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Part:
    """Something that a step reads or computes, and whether all its numbers are finite."""

    # Part of the structure: a dict would come out of jax.grad in the order of its keys.
    name: str = field(metadata={"static": True})
    finite: Bool[Array, ""]


class Examined(NamedTuple):
    """The variables before a step, what its layers compute in that order, and the gradients."""

    variables: list[Part]
    outputs: list[Part]
    gradients: list[Part]


def examine(
    state: TrainState,
    source: DeviceSource,
    key: PRNGKeyArray,
    *,
    task: Task,
    batches: Batches,
    graphdef: nnx.GraphDef,
    objective: Objective,
    compute_dtype: DTypeLike,
) -> Examined:
    """Recomputes the step after `state` in parts, on the batch that `run_steps` would draw.

    A pure function of one device, like those in `step`; a part is finite if it is on all devices.
    """
    draw = drawing(state.step, source, key, task=task, batches=batches)
    batch, keys = draw(state.step)
    loss = partial(
        forward, graphdef=graphdef, objective=objective, compute_dtype=compute_dtype, capture=True
    )

    def loss_and_parts(params):
        value, done = loss(params, state.rest, batch, keys)
        outputs = {"the images": batch.image} | _in_order(done.output)
        outputs |= {f"the metric '{name}'": metric for name, metric in done.metrics.items()}
        return value, [_part(name, output) for name, output in outputs.items()]

    gradients, outputs = jax.grad(loss_and_parts, has_aux=True)(state.params)
    gradients = lax.pmean(gradients, DEVICES)
    examined = Examined(_by_path(state.params, state.rest), outputs, _by_path(gradients))
    return jax.tree.map(lambda finite: lax.pmin(finite.astype(jnp.int32), DEVICES) > 0, examined)


def describe(examined: Examined) -> str:
    """Returns one line that says where the first number that is not finite appeared."""
    variables, outputs, gradients = ([p.name for p in parts if not p.finite] for parts in examined)
    if outputs:
        text = f"the first output that is not finite is {outputs[0]}"
        if variables:
            text += f" (before the step {_list(variables)} already had numbers that are not)"
        return text
    if gradients:
        return f"all outputs are finite, but not the gradient of {_list(gradients)}"
    if variables:
        return f"all outputs and gradients are finite, but not {_list(variables)}"
    return (
        "computed once more, all outputs and gradients of that batch are finite: a number at the "
        "edge of what floats hold"
    )


def _in_order(output: Output) -> dict[str, Any]:
    """Returns what the network computed, in that order."""
    made: dict[str, Any] = {}
    for name, features in output.features.items():
        routed = output.routed.get(name)
        if routed is not None:
            made[f"the coupling of '{name}'"] = routed.coupling
        made[f"'{name}'"] = features
        if routed is not None and routed.activations is not None:
            made[f"the activations of '{name}'"] = routed.activations
    made["the scores"] = output.scores
    if output.reconstruction is not None:
        made["the reconstruction"] = output.reconstruction
    return made


def _by_path(*trees: Any) -> list[Part]:
    leaves = [leaf for tree in trees for leaf in jax.tree_util.tree_leaves_with_path(tree)]
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    names = [f"'{path.removesuffix('.value')}'" for path in paths]
    return [_part(name, leaf) for name, (_, leaf) in zip(names, leaves, strict=True)]


def _part(name: str, value: Array) -> Part:
    return Part(name, jnp.all(jnp.isfinite(value)))


def _list(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
