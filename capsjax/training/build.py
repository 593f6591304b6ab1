"""From a config and a task to the programs of a run, before its first step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import optax
from flax import nnx
from jaxtyping import Array

from capsjax import models
from capsjax.data.tasks import Task
from capsjax.models import paths
from capsjax.training import config as configs
from capsjax.training import divergence, own_network
from capsjax.training.feed import is_streamed
from capsjax.training.objective import Objective, make_objective
from capsjax.training.optimizers import make_optimizer
from capsjax.training.parallel import Devices, check_batch_size, on_devices, set_training
from capsjax.training.state import TrainState, init_state, num_parameters, split
from capsjax.training.step import Batches, DeviceSource, run_steps, update

MAX_STEPS_PER_DISPATCH = 256
MAX_STEPS = 2**31 - 1  # they are counted in int32
MAX_SEED = 2**32 - 1  # JAX takes others for one of these


@dataclass(frozen=True)
class Training:
    """What all runs of one config have in common, whatever their seeds.

    Attributes:
      config: complete, with the input shape and the class names.
      task: what to train on.
      batches: how an epoch is divided.
      devices: of all hosts.
      optimizer: leaves frozen layers alone.
      objective: the loss to minimise.
      graphdef: of the network in training.
      eval_graphdef: of the network in evaluation.
      num_parameters: trainable numbers of the network.
    """

    config: ml_collections.ConfigDict
    task: Task
    batches: Batches
    devices: Devices
    optimizer: optax.GradientTransformation
    objective: Objective
    graphdef: nnx.GraphDef
    eval_graphdef: nnx.GraphDef
    num_parameters: int

    @property
    def num_steps(self) -> int:
        """The steps of a whole run, if nothing stops it early."""
        return self.config.training.epochs * self.batches.per_epoch

    def config_of(self, seed: int) -> ml_collections.ConfigDict:
        """The complete config of one run."""
        config = self.config.copy_and_resolve_references()
        config.seed, config.seeds = seed, 1
        return config

    def init_state(self, seed: int, pretrained: Mapping[str, Array] | None = None) -> TrainState:
        """The state before the first step; abstract inside `jax.eval_shape`.

        `pretrained` holds variables by path, which take the place of fresh ones.
        """
        model = build_model(self.config_of(seed))
        if pretrained:
            # Copies: a run donates its arrays, and other seeds begin with these too.
            copies = {path: jnp.array(variable) for path, variable in pretrained.items()}
            nnx.update(model, paths.replaced(nnx.state(model), copies))
        set_training(model)
        averaged = self.config.training.ema_decay > 0
        return init_state(model, self.optimizer, averaged=averaged)[1]

    @property
    def update(self) -> Callable[..., Any]:
        """`step.update` of a state, a batch and the model's keys."""
        return partial(
            update,
            optimizer=self.optimizer,
            ema_decay=self.config.training.ema_decay,
            **self._forward,
        )

    @property
    def run_steps(self) -> Callable[..., Any]:
        """`step.run_steps` of a state, a source, a key and a count."""
        return partial(
            run_steps,
            task=self.task,
            batches=self.batches,
            update=self.update,
            capacity=MAX_STEPS_PER_DISPATCH,
        )

    def dispatch(self) -> partial:
        """`run_steps` on the devices; the state that it is given is consumed."""
        return on_devices(
            self.run_steps, self.devices, (None, self._source_axes, None, None), donate=(0,)
        )

    def examine(self) -> partial:
        """`divergence.examine` of a state, a source and a key, on the devices."""
        function = partial(
            divergence.examine, task=self.task, batches=self.batches, **self._forward
        )
        return on_devices(function, self.devices, (None, self._source_axes, None))

    @property
    def _forward(self) -> dict[str, Any]:
        return {
            "graphdef": self.graphdef,
            "objective": self.objective,
            "compute_dtype": self.config.training.compute_dtype,
        }

    @property
    def _source_axes(self) -> Any:
        return DeviceSource(None, 0 if is_streamed(self.task) else None, None)  # type: ignore[arg-type]


def build(config: ml_collections.ConfigDict, task: Task, devices: Devices) -> Training:
    """The network, optimizer, objective and step that `config` describes, without parameters.

    Args:
      config: see `capsjax.training.config.default`.
      task: what to train on.
      devices: of all hosts; nothing runs on them before a program is called, so they may be those
        of a topology that is only compiled for.

    Raises:
      ValueError: the config does not fit itself, the task or the devices.
    """
    configs.check(config)
    _check(config)
    check_batch_size(config.training.batch_size, len(devices))
    batches = Batches(
        len(task.train.labels), config.training.batch_size, len(devices), task.versions
    )
    if not batches.per_epoch:
        fitting = batches.num_examples // len(devices) * len(devices)
        raise ValueError(
            f"training.batch_size is {batches.batch_size}, more than the {batches.num_examples} "
            f"training images of {task.name}: choose --config.training.batch_size={fitting}"
        )
    num_steps = config.training.epochs * batches.per_epoch
    if num_steps > MAX_STEPS:
        raise ValueError(
            f"training.epochs is {config.training.epochs}: a run has at most "
            f"{MAX_STEPS // batches.per_epoch:,} epochs of {batches.per_epoch:,} steps"
        )
    if config.optimizer.get("accumulate_steps", 1) > num_steps:
        raise ValueError(
            f"optimizer.accumulate_steps is {config.optimizer.accumulate_steps}, more than the "
            f"{num_steps} steps of the run: no update would ever be made"
        )
    if config.training.stop_at_accuracy and not len(task.validation):
        raise ValueError(
            f"training.stop_at_accuracy is {config.training.stop_at_accuracy}, but nothing is held "
            "out to measure it: raise data.validation_fraction, or set it to 0"
        )
    config = configs.resolve(config, task.input_shape, task.class_names)
    optimizer = make_optimizer(config.optimizer, config.schedule, steps_per_epoch=batches.per_epoch)
    objective = make_objective(**config.loss, rule=task.rule)
    model = nnx.eval_shape(lambda: build_model(config))
    model.eval()
    if models.is_registered(config.model.name):
        own_network.check(config.model.name, model, task.input_shape, len(task.class_names))
    eval_graphdef, params, _ = split(model)
    set_training(model)
    graphdef, _, _ = split(model)
    _named("init_layers", paths.check_known, params, config.init_layers)
    if config.frozen_layers:
        frozen = _named("frozen_layers", paths.within, params, config.frozen_layers)
        if all(jax.tree.leaves(frozen)):
            raise ValueError(
                f"frozen_layers {config.frozen_layers} is the whole network: nothing is left to "
                "train"
            )
        optimizer = paths.freeze(optimizer, frozen)
    return Training(
        config,
        task,
        batches,
        devices,
        optimizer,
        objective,
        graphdef,
        eval_graphdef,
        num_parameters(params),
    )


def build_model(config: ml_collections.ConfigDict) -> nnx.Module:
    """The network that a resolved config describes, with fresh parameters of its seed."""
    return models.create(
        **config.model,
        input_shape=tuple(config.task.input_shape),
        num_classes=len(config.task.class_names),
        rngs=nnx.Rngs(config.seed),
    )


def _check(config: ml_collections.ConfigDict) -> None:
    for section, key in (
        ("training", "epochs"),
        ("training", "log_every_steps"),
        ("checkpoints", "keep"),
    ):
        if config[section][key] < 1:
            raise ValueError(f"{section}.{key} must be at least 1, got {config[section][key]}")
    last_seed = config.seed + config.seeds - 1
    if not 0 <= config.seed <= last_seed <= MAX_SEED:
        raise ValueError(
            f"seeds must lie in [0, {MAX_SEED}], got {config.seed}"
            + (f" to {last_seed}" if last_seed > config.seed else "")
        )
    if config.key_version not in range(1, configs.KEY_VERSION + 1):
        raise ValueError(
            f"key_version must be from 1 to {configs.KEY_VERSION}, got {config.key_version}: the "
            "run is of a later version of capsjax"
        )
    for key, known in (
        ("compute_dtype", ("float32", "bfloat16")),
        ("matmul_precision", ("default", "high", "highest")),
    ):
        if config.training[key] not in known:
            raise ValueError(
                f"training.{key} must be one of {', '.join(known)}, got {config.training[key]!r}"
            )
    if not 0 <= config.training.stop_at_accuracy <= 1:
        raise ValueError(
            "training.stop_at_accuracy must be a fraction in [0, 1] such as 0.9922 (0: do not stop "
            f"early), got {config.training.stop_at_accuracy}"
        )
    if not 0 <= config.training.ema_decay < 1:
        raise ValueError(
            "training.ema_decay must be in [0, 1) (0: no averages; 0.999 averages about 1,000 "
            f"steps), got {config.training.ema_decay}"
        )
    for key in ("init_layers", "frozen_layers"):
        names = config[key]
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"{key} must be a tuple of layers' names, got {names!r}")
    if config.init_layers and not config.init_from:
        raise ValueError(
            f"init_layers is {config.init_layers}, but init_from is empty: name the "
            "run to take them from"
        )


def _named(key: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
