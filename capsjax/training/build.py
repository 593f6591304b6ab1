"""From a config and a task to the programs of a run, before its first step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import ml_collections
import optax
from flax import nnx
from jaxtyping import Array

from capsjax import models
from capsjax._names import differences
from capsjax.data.tasks import Task
from capsjax.models import Output, ScoreKind, paths
from capsjax.models.model import Model
from capsjax.training import divergence, step
from capsjax.training.feed import is_streamed
from capsjax.training.objective import Objective, make_objective
from capsjax.training.optimizers import make_optimizer
from capsjax.training.parallel import Devices, Program, check_batch_size, on_devices
from capsjax.training.state import TrainState, init_state, num_parameters, set_training, split
from capsjax.training.step import Batches, DeviceSource

MAX_STEPS_PER_DISPATCH = 256


@dataclass(frozen=True)
class Training:
    """What all runs of one config have in common, whatever their seeds."""

    config: ml_collections.ConfigDict  # complete, with the input shape and the class names
    task: Task  # what to train on
    batches: Batches  # how an epoch is divided
    devices: Devices  # of all hosts
    optimizer: optax.GradientTransformation  # leaves frozen layers alone
    objective: Objective  # the loss to minimise
    graphdef: nnx.GraphDef  # of the network in training
    eval_graphdef: nnx.GraphDef  # of the network in evaluation
    score_kind: ScoreKind  # of the network
    num_parameters: int  # trainable numbers of the network
    shapes: Mapping[str, jax.ShapeDtypeStruct]  # of the network's variables, by path

    @property
    def num_steps(self) -> int:
        """The steps of a whole run, if nothing stops it early."""
        return self.config.training.epochs * self.batches.per_epoch

    def init_state(self, pretrained: Mapping[str, Array] | None = None) -> TrainState:
        """Returns the state before the first step, with the `pretrained` variables by path."""
        model = build_model(self.config)
        if pretrained:
            nnx.update(model, paths.replaced(nnx.state(model), dict(pretrained)))
        set_training(model)
        return init_state(model, self.optimizer)[1]

    def dispatch(self) -> Program:
        """Returns a program that runs `step.run_steps`; it consumes the state it is given."""
        update = partial(step.update, optimizer=self.optimizer, **self._of_forward)
        run_steps = partial(step.run_steps, update=update, capacity=MAX_STEPS_PER_DISPATCH)
        return self._on_devices(run_steps, None, donate=(0,))

    def examination(self) -> Program:
        """Returns a program that runs `divergence.examine` on the devices."""
        return self._on_devices(partial(divergence.examine, **self._of_forward))

    @property
    def _of_forward(self) -> dict[str, Any]:
        dtype = self.config.training.compute_dtype
        return {"graphdef": self.graphdef, "objective": self.objective, "compute_dtype": dtype}

    def _on_devices(self, function: Callable, *axes: None, donate: tuple[int, ...] = ()) -> Program:
        """Compiles a function of a state, a source, a key, and arguments with further `axes`."""
        images: Any = 0 if is_streamed(self.task) else None
        source: Any = DeviceSource(None, images, None)  # type: ignore[arg-type]
        function = partial(function, task=self.task, batches=self.batches)
        return on_devices(function, self.devices, (None, source, None, *axes), donate=donate)


def build(config: ml_collections.ConfigDict, task: Task, devices: Devices) -> Training:
    """Builds the network, optimizer, objective and step that `config` describes; no parameters.

    The config must be complete; the devices are those of all hosts, or of a topology to compile
    for. Raises ValueError if the config does not fit the task or the devices.
    """
    config = resolve(config, task.input_shape, task.class_names)
    model = abstract_model(config)
    score_kind = _score_kind(config, model)
    batches = _batches(config, task, len(devices))
    eval_graphdef, params, rest = split(model)
    set_training(model)
    optimizer = make_optimizer(config.optimizer, config.schedule, steps_per_epoch=batches.per_epoch)
    paths.check_known(params, config.init_layers, "init_layers")
    if config.frozen_layers:
        frozen = paths.within(params, config.frozen_layers, "frozen_layers")
        if all(jax.tree.leaves(frozen)):
            raise ValueError(f"frozen_layers {config.frozen_layers} leaves nothing to train")
        optimizer = optax.transforms.selective_transform(optimizer, freeze_mask=frozen)
    return Training(
        config=config,
        task=task,
        batches=batches,
        devices=devices,
        optimizer=optimizer,
        objective=make_objective(**config.loss, rule=task.rule),
        graphdef=nnx.graphdef(model),
        eval_graphdef=eval_graphdef,
        score_kind=score_kind,
        num_parameters=num_parameters(model),
        shapes=paths.by_path(params) | paths.by_path(rest),
    )


def resolve(
    config: ml_collections.ConfigDict,
    input_shape: tuple[int, int, int],
    class_names: tuple[str, ...],
) -> ml_collections.ConfigDict:
    """Returns `config` with the data's shape and classes: enough to rebuild the network."""
    resolved = config.copy_and_resolve_references()
    with resolved.unlocked():
        resolved.task = {"input_shape": tuple(input_shape), "class_names": tuple(class_names)}
    return resolved


def build_model(config: ml_collections.ConfigDict) -> nnx.Module:
    """Returns the network of a resolved config, with fresh parameters of its seed."""
    return models.create(
        **config.model,
        input_shape=tuple(config.task.input_shape),
        num_classes=len(config.task.class_names),
        rngs=nnx.Rngs(config.seed),
    )


def abstract_model(config: ml_collections.ConfigDict) -> nnx.Module:
    """Returns the network of a resolved config, in evaluation mode, with shapes for arrays."""
    model = nnx.eval_shape(lambda: build_model(config))
    model.eval()
    return model


def trained_model(
    config: ml_collections.ConfigDict, variables: Mapping[str, Any], where: Any
) -> Model:
    """Returns the network of a resolved config, in evaluation mode, with `variables` by path.

    Raises ValueError, which names `where` they come from, if they do not fit the network.
    """
    graphdef, state = nnx.split(abstract_model(config))
    there, expected = (
        {path: f"{x.dtype}{list(x.shape)}" for path, x in of.items()}
        for of in (variables, paths.by_path(state))
    )
    if wrong := differences(there, expected):
        raise ValueError(
            f"{where} does not hold the variables of {config.model.name} (there → expected): "
            f"{wrong[0]}. The network's code has changed since: see the commit that made it"
        )
    state = paths.replaced(state, {path: jnp.asarray(x) for path, x in variables.items()})
    return cast(Model, nnx.merge(graphdef, state))


def _score_kind(config: ml_collections.ConfigDict, model: nnx.Module) -> ScoreKind:
    name = config.model.name
    if random := nnx.to_flat_state(nnx.state(model, nnx.RngState)):
        path = ".".join(map(str, random[0][0][:-1]))
        raise ValueError(
            f"the network {name!r} keeps a stream of random numbers, {path}, which all devices "
            "would share: in place of nnx.Dropout use capsjax.layers.dropout(x, keys, keep=…), and "
            "give a bridged Linen module to_nnx__rngs = None after lazy_init"
        )
    images = jax.ShapeDtypeStruct((2, *config.task.input_shape), jnp.float32)
    out = nnx.eval_shape(lambda model, images: model(images), model, images)
    if not isinstance(out, Output):
        raise TypeError(f"{name!r} must return a capsjax.models.Output, got {type(out).__name__}")
    shape, classes = out.scores.shape, len(config.task.class_names)
    if shape != (2, classes):
        raise ValueError(f"{name!r} must return scores [n, {classes}], got {shape} for 2 images")
    return out.score_kind


def _batches(config: ml_collections.ConfigDict, task: Task, num_devices: int) -> Batches:
    options = config.training
    check_batch_size(options.batch_size, num_devices, "training.batch_size")
    batches = Batches(len(task.train.labels), options.batch_size, num_devices, task.versions)
    if not batches.per_epoch:
        raise ValueError(
            f"training.batch_size is {batches.batch_size}, more than the {batches.num_examples} "
            f"training images of {task.name} that are not held out: make it smaller"
        )
    if options.stop_at_accuracy and not len(task.validation):
        raise ValueError("stop_at_accuracy needs images held out: see the options of data")
    return batches
