"""From a config to a trained network."""

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath

from capsjax.data import tasks
from capsjax.data.stored import DEVICE_BUDGET_MB, Stored
from capsjax.training import config as configs
from capsjax.training import (
    divergence,
    evaluation,
    feed,
    hosts,
    objective,
    optimizers,
    signals,
    snapshots,
    storage,
    workdir,
)
from capsjax.training.checkpoints import Checkpoints, build_model
from capsjax.training.display import Display, console
from capsjax.training.metrics import Diverged, History
from capsjax.training.parallel import check_batch_size, on_devices, replicate, set_training
from capsjax.training.profiling import Profiler
from capsjax.training.state import TrainState, init_state, num_parameters, split
from capsjax.training.step import Batches, run_steps, update
from capsjax.training.watch import STALL_SECONDS, Watch
from capsjax.training.writer import Writer

# Dispatches are made as long as this: the host's work between them is nothing beside it, and a
# person sees the bar move and Ctrl-C take effect.
DISPATCH_SECONDS = 2.0
MAX_STEPS_PER_DISPATCH = 256


class Result(NamedTuple):
    """The end of a training run: the last state (on the host) and the history of its metrics."""

    state: TrainState
    history: History


def train(
    config: ml_collections.ConfigDict,
    directory: str | os.PathLike[str],
    *,
    data_dir: str | None = None,
    device_budget_mb: float | None = DEVICE_BUDGET_MB,
    devices: Sequence[jax.Device] | None = None,
    stall_seconds: float = STALL_SECONDS,
    snapshot_every: int = 0,
    profile: tuple[int, int] | None = None,
    memory_profile: int | None = None,
) -> Result:
    """Trains what `config` describes; goes on where an earlier call in `directory` stopped.

    Args:
      config: see `capsjax.training.config.default`.
      directory: for the config, metrics and checkpoints; local, or any address of etils.epath.
      data_dir: as for `capsjax.data.load`.
      device_budget_mb: source images of a split that take more when decoded (in 2**20 bytes) stay
        on the host or in their files and are fed to the devices. The examples are the same.
      devices: those of all hosts by default; each batch is divided over them.
      stall_seconds: the process ends when nothing happens for so long; 0 for no limit.
      snapshot_every: epochs between images and coupling entropies for TensorBoard; 0 for none.
      profile: (START, STOP), steps to trace into `directory`/profile.
      memory_profile: after so many steps, what is on the devices: `directory`/memory.prof.

    Raises:
      ValueError: a config that does not fit itself, the data, the devices or the directory.
      Diverged: a loss or gradient is not finite. The last good checkpoint stays.
      Interrupted: by Ctrl-C or SIGTERM, after saving.
    """
    hosts.check_started()
    watch = Watch(stall_seconds)
    devices = list(devices or jax.devices())
    directory = storage.place(directory)
    terminal = console()
    batch_size = config.training.batch_size
    check_batch_size(batch_size, len(devices))
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

    if snapshot_every < 0:
        raise ValueError(f"snapshot_every must be ≥ 0 (0 for none), got {snapshot_every}")

    task = tasks.create(**config.data, data_dir=data_dir, device_budget_mb=device_budget_mb)
    batches = Batches(len(task.train.labels), batch_size, len(devices))
    if not batches.per_epoch:
        raise ValueError(
            f"training.batch_size is {batch_size}, more than the {batches.num_examples} training "
            f"images of {task.name}"
        )
    total = config.training.epochs * batches.per_epoch
    profiler = Profiler(directory, trace=profile, memory=memory_profile, total=total)
    config = configs.resolve(config, task.input_shape, task.class_names)
    optimizer = optimizers.create(
        config.optimizer, config.schedule, steps_per_epoch=batches.per_epoch
    )
    goal = objective.create(**config.loss, rule=task.rule)
    model = build_model(config)
    model.eval()
    eval_graphdef, _, _ = split(model)
    set_training(model)
    graphdef, state = init_state(model, optimizer)

    terminal.print(
        f"{config.model.name}: {num_parameters(state.params):,} parameters. {task.name}: "
        f"{batches.num_examples:,} images to train on, {len(task.validation):,} held out. "
        f"{len(devices)} × {devices[0].device_kind}."
    )
    if isinstance(task.train.images, Stored):
        terminal.print(
            f"The images take {task.train.images.nbytes / 2**20:,.1f} MB, more than "
            "device_budget_mb: they are fed from the host."
        )
    hosts.from_first(lambda: workdir.claim(directory, config))
    with Checkpoints(directory, keep=config.checkpoints.keep) as saver, watch:
        history = History()
        if saver.latest_step() is not None:
            state, history = saver.restore(state)
        step = int(state.step)
        if step == total:
            terminal.print(f"{directory}: finished before, at step {step}.")
            return Result(state, history)
        if step:
            terminal.print(f"{directory}: going on from step {step}.")
            if profile and step >= profile[1]:
                terminal.print("The steps to profile were done before: there will be no trace.")
            if memory_profile is not None and step > memory_profile:
                terminal.print("The step of the memory profile was done before: there is none.")

        network = {
            "graphdef": graphdef,
            "objective": goal,
            "compute_dtype": config.training.compute_dtype,
        }
        update_step = partial(update, optimizer=optimizer, **network)
        program = partial(
            run_steps,
            task=task,
            batches=batches,
            update=update_step,
            capacity=MAX_STEPS_PER_DISPATCH,
        )
        dispatch = on_devices(program, devices, 5, donate=(0,), divided=(4,))
        examine = on_devices(
            partial(divergence.examine, task=task, batches=batches, **network),
            devices,
            4,
            divided=(3,),
        )
        validate = _validator(eval_graphdef, task, batch_size, devices, watch)
        take_snapshot = None
        if snapshot_every and hosts.is_first():
            take_snapshot = snapshots.taker(eval_graphdef, task)
        source = feed.for_training(task, batches, jax.random.key(config.seed), devices)
        key = replicate(jax.random.key(config.seed), devices)
        state = replicate(state, devices)
        with (
            jax.default_matmul_precision(config.training.matmul_precision),
            Writer(directory, history) as writer,
            Display(terminal, first=step, total=total, batch_size=batch_size) as display,
            signals.received() as received,
            source.running(step, total) as at,
            profiler,
        ):
            # No step at all: this compiles, which may take any time.
            watch.doing("compiling", limited=False)
            fed, _ = at(step)
            state, _ = jax.block_until_ready(dispatch(state, source.arrays, key, np.int32(0), fed))
            hosts.agree(0, 0)  # all have compiled
            display.restart_clock()
            count = 1
            while step < total:
                watch.doing(f"at step {step}")
                profiler.at(step)
                count = profiler.cut(step, count)
                stop, count = hosts.agree(received[0] if received else 0, count)
                if stop:
                    break
                epoch = step // batches.per_epoch + 1
                began = time.monotonic()
                fed, end = at(step)
                count = min(count, epoch * batches.per_epoch - step, end - step)
                state, record = dispatch(state, source.arrays, key, np.int32(count), fed)
                record = {name: np.asarray(values)[:count] for name, values in record.items()}
                seconds = time.monotonic() - began
                try:
                    history.add_steps(
                        step, record, every=config.training.log_every_steps, epoch=epoch
                    )
                except Diverged as error:
                    watch.doing("looking for what is not finite", limited=False)
                    found = divergence.describe(examine(state, source.arrays, key, fed))
                    raise Diverged(_diverged(error, found, saver, directory)) from None
                step += count
                writer.add_speed(step, count * batch_size / seconds)
                display.update(step, record["loss"][-1], record["accuracy"][-1])
                if step == epoch * batches.per_epoch:
                    history.close_interval(step, epoch)
                    accuracy = validate(state)
                    if accuracy is not None:
                        history.add_validation(step, epoch, accuracy)
                    display.epoch(step, epoch, history.epoch_means(epoch), accuracy)
                    if take_snapshot and epoch % snapshot_every == 0:
                        watch.doing("looking at a few images", limited=False)  # it compiles
                        writer.add_snapshot(step, take_snapshot(state))
                    watch.doing(f"saving the checkpoint of step {step}")
                    saver.save(state, config, history)
                writer.flush()
                count = min(MAX_STEPS_PER_DISPATCH, max(1, int(count * DISPATCH_SECONDS / seconds)))
            profiler.at(step)
            watch.doing(f"saving the checkpoint of step {step}")
            saver.save(state, config, history)
            saver.wait()
            if step < total:
                raise signals.Interrupted(stop, step)
        return Result(jax.tree.map(np.asarray, state), history)


def _validator(graphdef, task, batch_size, devices, watch):
    """A function from a state to its validation accuracy; to None where nothing is held out."""
    if not len(task.validation):
        return lambda state: None
    labels = task.validation.labels()
    score = evaluation.scorer(
        graphdef,
        task.validation,
        batch_size=batch_size,
        devices=devices,
        progress=lambda done: watch.doing(f"validating, {done} images done"),
    )

    def accuracy(state):
        logits = evaluation.gives_logits(graphdef, state.params, state.rest, task.input_shape)
        scores = score(state.params, state.rest)
        return evaluation.share_right(task.rule, scores, labels, logits=logits).accuracy

    return accuracy


def _diverged(error: Diverged, found: str, saver: Checkpoints, directory: epath.Path) -> str:
    saver.wait()  # for a save under way
    good = saver.latest_step()
    stays = "there is no checkpoint yet" if good is None else f"the checkpoint of step {good} stays"
    return (
        f"{error}: {found}. Training stopped; {stays} in {directory}. A lower "
        "optimizer.learning_rate often helps"
    )
