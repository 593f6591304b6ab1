"""From a config to a trained network."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath

from capsjax.data.stored import DEVICE_BUDGET_MB
from capsjax.training import (
    divergence,
    evaluation,
    feed,
    hosts,
    signals,
    snapshots,
    storage,
    workdir,
)
from capsjax.training.display import Display
from capsjax.training.metrics import Diverged, History
from capsjax.training.parallel import on_devices, replicate
from capsjax.training.profiling import Profiler
from capsjax.training.run import Run
from capsjax.training.setup import MAX_STEPS_PER_DISPATCH, Setup, prepare
from capsjax.training.state import TrainState, pick, stack
from capsjax.training.watch import STALL_SECONDS, Watch

# Dispatches are made as long as this: the host's work between them is nothing beside it, and a
# person sees the bar move and Ctrl-C take effect.
DISPATCH_SECONDS = 2.0


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
      config: see `capsjax.training.config.default`; of one seed (`seeds.train` is for several).
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
    if config.seeds != 1:
        raise ValueError(
            f"seeds must be 1 here, got {config.seeds}: capsjax.training.seeds.train trains several"
        )
    place = storage.place(directory)
    setup = prepare(
        config,
        [place],
        data_dir=data_dir,
        device_budget_mb=device_budget_mb,
        devices=list(devices or jax.devices()),
    )
    (result,) = train_runs(
        setup,
        {config.seed: place},
        stall_seconds=stall_seconds,
        snapshot_every=snapshot_every,
        profile=profile,
        memory_profile=memory_profile,
    )
    return result


def train_runs(
    setup: Setup,
    directories: Mapping[int, epath.Path],
    *,
    stall_seconds: float,
    snapshot_every: int,
    profile: tuple[int, int] | None,
    memory_profile: int | None,
) -> list[Result]:
    """Trains the runs of some seeds to the end, side by side in one program if there are several.

    Args:
      setup: of their config.
      directories: of the runs, by seed.
      stall_seconds, snapshot_every, profile, memory_profile: as for `train`; the profiles go to the
        first directory.

    Returns:
      The result of each.
    """
    watch = Watch(stall_seconds)
    snapshots.check_every(snapshot_every)
    profiler = Profiler(
        next(iter(directories.values())),
        trace=profile,
        memory=memory_profile,
        total=setup.num_steps,
    )
    terminal, task, batches, devices = setup.terminal, setup.task, setup.batches, setup.devices
    total, batch_size = setup.num_steps, batches.batch_size
    runs = [Run(setup.of_seed(seed), directory, total) for seed, directory in directories.items()]
    several = len(runs) > 1
    fresh = [setup.first_state(seed) for seed in directories]
    for run in runs:
        hosts.from_first(partial(workdir.claim, run.directory, run.config))
    with contextlib.ExitStack() as open_runs, watch:
        for run in runs:
            open_runs.enter_context(run)
        states = [run.restore(state) for run, state in zip(runs, fresh, strict=True)]
        for run in runs:
            if run.finished:
                terminal.print(f"{run.directory}: finished before, at step {run.step}.")
            elif run.step:
                terminal.print(f"{run.directory}: going on from step {run.step}.")
        if all(run.finished for run in runs):
            return [Result(state, run.history) for state, run in zip(states, runs, strict=True)]
        first = min(run.step for run in runs if not run.finished)
        if profile and first >= profile[1]:
            terminal.print("The steps to profile were done before: there will be no trace.")
        if memory_profile is not None and first > memory_profile:
            terminal.print("The step of the memory profile was done before: there is none.")

        dispatch, keys = setup.dispatch, [jax.random.key(seed) for seed in directories]
        if several:
            dispatch = side_by_side(setup)
        source = feed.for_training(task, batches, keys[0], devices)
        state = replicate(stack(states) if several else states[0], devices)
        key = replicate(jax.numpy.stack(keys) if several else keys[0], devices)
        validate = _validator(setup, fresh[0], watch)
        take_snapshot = None
        if snapshot_every and hosts.is_first():
            take_snapshot = snapshots.taker(setup.eval_graphdef, task)
        with (
            jax.default_matmul_precision(setup.config.training.matmul_precision),
            contextlib.ExitStack() as writers,
            Display(
                terminal, first=first, total=total, batch_size=batch_size * len(runs)
            ) as display,
            signals.received() as received,
            source.running(first, total) as at,
            profiler,
        ):
            for run in runs:
                writers.enter_context(run.writer())
            # No step at all: this compiles, which may take any time.
            watch.doing("compiling", limited=False)
            fed, _ = at(first)
            none = np.zeros(len(runs), np.int32) if several else np.int32(0)
            state, _ = jax.block_until_ready(dispatch(state, source.arrays, key, none, fed))
            hosts.agree(0, 0)  # all have compiled
            display.restart_clock()
            count, stop = 1, 0
            while active := [run for run in runs if not run.finished]:
                # Those that are behind catch up: their last checkpoint was older.
                step = min(run.step for run in active)
                watch.doing(f"at step {step}")
                profiler.at(step)
                count = profiler.cut(step, count)
                stop, count = hosts.agree(received[0] if received else 0, count)
                if stop:
                    break
                epoch = step // batches.per_epoch + 1
                began = time.monotonic()
                fed, end = at(step)
                ends = [run.step for run in active if run.step > step]
                count = min(count, min(epoch * batches.per_epoch, end, *ends) - step)
                behind = [n for n, run in enumerate(runs) if run in active and run.step == step]
                counts = np.zeros(len(runs), np.int32)
                counts[behind] = count
                state, record = dispatch(
                    state, source.arrays, key, counts if several else counts[0], fed
                )
                record = {name: np.asarray(values) for name, values in record.items()}
                seconds = time.monotonic() - began
                speed = count * batch_size / seconds
                for n in behind:
                    metrics = {k: (v[n] if several else v)[:count] for k, v in record.items()}
                    try:
                        runs[n].add_steps(metrics, epoch=epoch, images_per_second=speed)
                    except Diverged as error:
                        watch.doing("looking for what is not finite", limited=False)
                        own = pick((state, key), n) if several else (state, key)
                        found = setup.examine(own[0], source.arrays, own[1], fed)
                        raise runs[n].diverged(error, divergence.describe(found)) from None
                step += count
                loss, accuracy = (
                    float(np.mean(np.atleast_2d(record[name])[behind, count - 1]))
                    for name in ("loss", "accuracy")
                )
                display.update(step, loss, accuracy)
                if step == epoch * batches.per_epoch:
                    for n in behind:
                        run, of_run = runs[n], pick(state, n) if several else state
                        accuracy = validate(of_run)
                        run.end_epoch(epoch, accuracy)
                        means = run.history.epoch_means(epoch)
                        of = f"seed {run.config.seed}  " if several else ""
                        display.epoch(step, epoch, means, accuracy, of)
                        if take_snapshot and epoch % snapshot_every == 0:
                            watch.doing("looking at a few images", limited=False)  # it compiles
                            run.add_snapshot(take_snapshot(of_run))
                        watch.doing(f"saving the checkpoint of step {step}")
                        run.save(of_run)
                for run in runs:
                    run.flush()
                count = min(MAX_STEPS_PER_DISPATCH, max(1, int(count * DISPATCH_SECONDS / seconds)))
            profiler.at(min(run.step for run in runs))
            states = [pick(state, n) if several else state for n in range(len(runs))]
            for run, of_run in zip(runs, states, strict=True):
                watch.doing(f"saving the checkpoint of step {run.step}")
                run.save(of_run)
            for run in runs:
                run.wait()
            if stop:
                raise signals.Interrupted(stop, min(run.step for run in runs))
            for run in runs:
                if run.stopped_early:
                    terminal.print(
                        f"{run.directory}: stopped early, at step {run.step} of {total}: the "
                        "validation accuracy reached training.stop_at_accuracy, "
                        f"{run.config.training.stop_at_accuracy:.2%}."
                    )
        return [
            Result(jax.tree.map(np.asarray, of_run), run.history)
            for of_run, run in zip(states, runs, strict=True)
        ]


def side_by_side(setup: Setup) -> partial:
    """`setup.dispatch` of several states, keys and counts at once, along a leading axis.

    Each has its own count: a run that is ahead waits, with none, for the others.
    """
    program = jax.vmap(setup.program, in_axes=(0, None, 0, 0, None))
    return on_devices(program, setup.devices, 5, donate=(0,), divided=(4,))


def _validator(setup: Setup, like: TrainState, watch: Watch):
    """A function from a state to its validation accuracy; to None where nothing is held out."""
    task = setup.task
    if not len(task.validation):
        return lambda state: None
    labels = task.validation.labels()
    logits = evaluation.gives_logits(setup.eval_graphdef, *like.evaluated, task.input_shape)
    score = evaluation.scorer(
        setup.eval_graphdef,
        task.validation,
        batch_size=setup.batches.batch_size,
        devices=setup.devices,
        progress=lambda done: watch.doing(f"validating, {done} images done"),
    )

    def accuracy(state):
        scores = score(*state.evaluated)
        return evaluation.share_right(task.rule, scores, labels, logits=logits).accuracy

    return accuracy
