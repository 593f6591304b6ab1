"""What a measurement of training steps is made of, put together as `capsjax.training.loop` does."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import ml_collections
from flax import nnx

from capsjax.data.tasks import Task
from capsjax.training import config as configs
from capsjax.training import objective, optimizers
from capsjax.training.checkpoints import build_model
from capsjax.training.parallel import set_training
from capsjax.training.setup import one_step
from capsjax.training.state import TrainState, init_state
from capsjax.training.step import Batches, run_steps


class Training(NamedTuple):
    """Of a fresh network.

    Attributes:
      config: complete.
      model: in training mode.
      state: before the first step, on the host's default device.
      update: `capsjax.training.step.update` of this network.
      run_steps: `capsjax.training.step.run_steps` of it, for `parallel.on_devices`.
    """

    config: ml_collections.ConfigDict
    model: nnx.Module
    state: TrainState
    batches: Batches
    optimizer: Any
    update: Callable[..., Any]
    run_steps: Callable[..., Any]


def training(
    config: ml_collections.ConfigDict,
    task: Task,
    *,
    batch_size: int,
    devices: Sequence[jax.Device],
    capacity: int = 1,
) -> Training:
    """The network of `config` on `task`, at most `capacity` steps in a dispatch."""
    config = configs.resolve(config, task.input_shape, task.class_names)
    batches = Batches(len(task.train.labels), batch_size, len(devices))
    optimizer = optimizers.create(
        config.optimizer, config.schedule, steps_per_epoch=batches.per_epoch
    )
    model = build_model(config)
    set_training(model)
    graphdef, state = init_state(model, optimizer)
    goal = objective.create(**config.loss, rule=task.rule)
    step = one_step(config, graphdef, goal, optimizer)
    program = partial(run_steps, task=task, batches=batches, update=step, capacity=capacity)
    return Training(config, model, state, batches, optimizer, step, program)
