"""What a config leads to, before its first step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import ml_collections
import optax
from etils import epath
from flax import nnx
from rich.console import Console

from capsjax.data import tasks
from capsjax.data.stored import Stored
from capsjax.data.tasks import Task
from capsjax.models import parts
from capsjax.training import checkpoints, divergence, finetuning, hosts, objective, optimizers
from capsjax.training import config as configs
from capsjax.training.checkpoints import build_model
from capsjax.training.display import console
from capsjax.training.finetuning import Trained
from capsjax.training.objective import Objective
from capsjax.training.parallel import check_batch_size, on_devices, set_training
from capsjax.training.state import TrainState, init_state, num_parameters, split
from capsjax.training.step import Batches, run_steps, update

MAX_STEPS_PER_DISPATCH = 256


class Setup(NamedTuple):
    """All that runs of one config have in common, whatever their seeds.

    Attributes:
      config: complete, with the input shape and the class names.
      task: what to train on.
      batches: how an epoch is divided.
      devices: of all hosts.
      optimizer: frozen layers left alone.
      graphdef: of the network in training.
      eval_graphdef: of the network in evaluation.
      program: `step.run_steps` of one state, key and count.
      dispatch: `program` on the devices.
      examine: `divergence.examine` of one state, on the devices.
      trained: what the network begins with, None for fresh parameters.
      terminal: for a person.
    """

    config: ml_collections.ConfigDict
    task: Task
    batches: Batches
    devices: Sequence[jax.Device]
    optimizer: optax.GradientTransformation
    graphdef: nnx.GraphDef
    eval_graphdef: nnx.GraphDef
    program: Callable[..., Any]
    dispatch: Callable[..., Any]
    examine: Callable[..., Any]
    trained: Trained | None
    terminal: Console

    @property
    def num_steps(self) -> int:
        """Of the whole run, if nothing stops it early."""
        return self.config.training.epochs * self.batches.per_epoch

    def of_seed(self, seed: int) -> ml_collections.ConfigDict:
        """The complete config of one run."""
        config = self.config.copy_and_resolve_references()
        config.seed, config.seeds = seed, 1
        return config

    def first_state(self, seed: int) -> TrainState:
        """Before the first step."""
        model = build_model(self.of_seed(seed))
        if self.trained is not None:
            finetuning.start_from(self.trained, model, self.config.init_layers)
        set_training(model)
        averaged = self.config.training.ema_decay > 0
        return init_state(model, self.optimizer, averaged=averaged)[1]


def prepare(
    config: ml_collections.ConfigDict,
    directories: Sequence[epath.Path],
    *,
    data_dir: str | None,
    device_budget_mb: float | None,
    devices: Sequence[jax.Device],
) -> Setup:
    """Checks `config` and loads its data; writes nothing.

    Args:
      config: see `capsjax.training.config.default`.
      directories: of the runs; `config.init_from` is not read if all of them have a checkpoint.
      data_dir, device_budget_mb, devices: as for `capsjax.training.loop.train`.

    Raises:
      ValueError: it does not fit itself, the data or the devices.
    """
    terminal = console()
    check_batch_size(config.training.batch_size, len(devices))
    _check(config)
    task = tasks.create(**config.data, data_dir=data_dir, device_budget_mb=device_budget_mb)
    batches = Batches(
        len(task.train.labels), config.training.batch_size, len(devices), task.versions
    )
    if not batches.per_epoch:
        raise ValueError(
            f"training.batch_size is {batches.batch_size}, more than the {batches.num_examples} "
            f"training images of {task.name}"
        )
    if config.training.stop_at_accuracy and not len(task.validation):
        raise ValueError(
            f"training.stop_at_accuracy is {config.training.stop_at_accuracy}, but nothing is held "
            "out to measure it: raise data.validation_fraction, or set it to 0"
        )
    config = configs.resolve(config, task.input_shape, task.class_names)
    optimizer = optimizers.create(
        config.optimizer, config.schedule, steps_per_epoch=batches.per_epoch
    )
    goal = objective.create(**config.loss, rule=task.rule)
    model = build_model(config)
    model.eval()
    eval_graphdef, params, _ = split(model)
    set_training(model)
    graphdef, _, _ = split(model)
    terminal.print(
        f"{config.model.name}: {num_parameters(params):,} parameters. {task.name}: "
        f"{batches.num_examples:,} images to train on, {len(task.validation):,} held out. "
        f"{len(devices)} × {devices[0].device_kind}."
    )
    if isinstance(task.train.images, Stored):
        terminal.print(
            f"The images take {task.train.images.nbytes / 2**20:,.1f} MB, more than "
            "device_budget_mb: they are fed from the host."
        )
    if config.frozen_layers:
        frozen = _named("frozen_layers", parts.within, params, config.frozen_layers)
        if all(jax.tree.leaves(frozen)):
            raise ValueError(
                f"frozen_layers {config.frozen_layers} is the whole network: nothing is left to "
                "train"
            )
        optimizer = parts.freeze(optimizer, frozen)
    _named("init_layers", parts.check_known, params, config.init_layers)
    trained = None
    if config.init_from and not hosts.from_first(lambda: _all_started(directories)):
        trained = finetuning.read(config.init_from)
        terminal.print(finetuning.start_from(trained, model, config.init_layers), markup=False)
    program = partial(
        run_steps,
        task=task,
        batches=batches,
        update=one_step(config, graphdef, goal, optimizer),
        capacity=MAX_STEPS_PER_DISPATCH,
    )
    dispatch = on_devices(program, devices, 5, donate=(0,), divided=(4,))
    examine = on_devices(
        partial(divergence.examine, task=task, batches=batches, **_forward(config, graphdef, goal)),
        devices,
        4,
        divided=(3,),
    )
    return Setup(
        config,
        task,
        batches,
        devices,
        optimizer,
        graphdef,
        eval_graphdef,
        program,
        dispatch,
        examine,
        trained,
        terminal,
    )


def one_step(
    config: ml_collections.ConfigDict,
    graphdef: nnx.GraphDef,
    goal: Objective,
    optimizer: optax.GradientTransformation,
) -> Callable[..., Any]:
    """`step.update` of one network as a complete `config` has it: of a state, a batch and keys."""
    return partial(
        update,
        optimizer=optimizer,
        ema_decay=config.training.ema_decay,
        **_forward(config, graphdef, goal),
    )


def _forward(
    config: ml_collections.ConfigDict, graphdef: nnx.GraphDef, goal: Objective
) -> dict[str, Any]:
    return {
        "graphdef": graphdef,
        "objective": goal,
        "compute_dtype": config.training.compute_dtype,
    }


def _check(config: ml_collections.ConfigDict) -> None:
    for section, key in (
        ("training", "epochs"),
        ("training", "log_every_steps"),
        ("checkpoints", "keep"),
    ):
        if config[section][key] < 1:
            raise ValueError(f"{section}.{key} must be at least 1, got {config[section][key]}")
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
            "training.stop_at_accuracy must be a share in [0, 1] such as 0.9922 (0: do not stop "
            f"early), got {config.training.stop_at_accuracy}"
        )
    if not 0 <= config.training.ema_decay < 1:
        raise ValueError(
            "training.ema_decay must be in [0, 1) (0: no averages; 0.999 averages about 1,000 "
            f"steps), got {config.training.ema_decay}"
        )
    for key in ("init_layers", "frozen_layers"):
        names = config[key]
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{key} must be a tuple of layers' names, got {names!r}")
    if config.init_layers and not config.init_from:
        raise ValueError(
            f"init_layers is {config.init_layers}, but init_from names no run to take them from"
        )


def _named(key: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _all_started(directories: Sequence[epath.Path]) -> bool:
    return all(checkpoints.latest_step(directory) is not None for directory in directories)
