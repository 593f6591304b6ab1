"""Everything that a training step changes, and nothing else."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Int

DEVICES = "devices"  # the axis of all devices, by which collectives name it


class TrainState(NamedTuple):
    """A pytree. The random numbers of a step and its place in the epoch follow from `step`."""

    step: Int[Array, ""]  # number of updates done
    params: nnx.State  # the model's `nnx.Param`s
    rest: nnx.State  # its other variables (running statistics)
    opt_state: optax.OptState  # the optimizer's


def init_state(
    model: nnx.Module, optimizer: optax.GradientTransformation
) -> tuple[nnx.GraphDef, TrainState]:
    graphdef, params, rest = split(model)
    return graphdef, TrainState(jnp.int32(0), params, rest, optimizer.init(params))


def split(model: nnx.Module) -> tuple[nnx.GraphDef, nnx.State, nnx.State]:
    """Returns the structure, trainable parameters and other variables of `model`."""
    graphdef, params, *rest = nnx.split(model, nnx.Param, ...)
    return graphdef, params, rest[0]


def set_training(model: nnx.Module) -> None:
    """Puts `model` in training mode, batch statistics taken over the batch of all devices."""
    model.train()
    model.set_attributes(nnx.BatchNorm, axis_name=DEVICES, raise_if_not_found=False)


def num_parameters(model: nnx.Module) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
