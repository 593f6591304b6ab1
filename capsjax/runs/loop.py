"""From a config to a trained network."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath
from flax import nnx
from jaxtyping import Array

from capsjax import _files
from capsjax.data import tasks
from capsjax.data.lazy_images import DEVICE_BUDGET_MB
from capsjax.evaluation import scoring, summaries
from capsjax.runs import checkpoints, circumstances, finetuning, hosts, snapshots, tracking
from capsjax.runs.display import Display, console
from capsjax.runs.failures import explained
from capsjax.runs.history import Diverged, History
from capsjax.runs.process import STALL_SECONDS, Deadline, Interrupted, catch_signals
from capsjax.runs.profiling import Profiler
from capsjax.runs.run import Run
from capsjax.training import config as configs
from capsjax.training import divergence, feed
from capsjax.training.build import MAX_STEPS_PER_DISPATCH, Training, build
from capsjax.training.parallel import replicate
from capsjax.training.state import TrainState
from capsjax.training.step import DeviceSource, run_key

# How long a dispatch takes: long enough to make the host's work between dispatches negligible,
# short enough for a person to see the bar move and Ctrl-C take effect.
DISPATCH_SECONDS = 2.0


class Result(NamedTuple):
    """The end of a training run: the last state (on the host) and the history of its metrics."""

    state: TrainState
    history: History


@dataclass(frozen=True)
class Monitoring:
    """What happens beside training; none of it changes a result.

    Attributes:
      stall_seconds: the longest that one piece of work may take before the process is ended; 0 for
        no limit.
      snapshot_every: epochs between images and coupling entropies for TensorBoard; 0 for none.
      profile: (START, STOP), steps to trace into the run's profile/.
      tracker: a service to send the metrics to, see `capsjax.runs.tracking`; "" for none.

    Raises:
      ValueError: a value is out of range.
    """

    stall_seconds: float = STALL_SECONDS
    snapshot_every: int = 0
    profile: tuple[int, int] | None = None
    tracker: str = ""

    def __post_init__(self) -> None:
        Deadline(self.stall_seconds)
        if self.tracker:
            tracking.check(self.tracker)
        if self.snapshot_every < 0:
            raise ValueError(f"snapshot_every must be ≥ 0 (0 for none), got {self.snapshot_every}")


def train(
    config: ml_collections.ConfigDict,
    directory: str | os.PathLike[str],
    *,
    data_dir: str | None = None,
    device_budget_mb: float | None = DEVICE_BUDGET_MB,
    devices: Sequence[jax.Device] | None = None,
    monitoring: Monitoring = Monitoring(),
) -> Result:
    """Trains the network that `config` describes; resumes what an earlier call left unfinished.

    Args:
      config: see `capsjax.training.config.default`; of one seed (`seeds.train_seeds` trains
        several).
      directory: for the config, metrics and checkpoints; local, or any address of etils.epath.
      data_dir: as for `capsjax.data.load`.
      device_budget_mb: source images of a split that take more when decoded (in 2**20 bytes) stay
        on the host or in their files and are fed to the devices. The examples are the same.
      devices: those of all hosts by default; each batch is divided over them.
      monitoring: what is done beside training.

    Raises:
      ValueError: a config that does not fit itself, the data, the devices or the directory.
      Diverged: a loss or gradient is not finite. The last good checkpoint stays.
      Interrupted: by Ctrl-C or SIGTERM, after saving.
    """
    training = load(config, data_dir, device_budget_mb, devices)
    seed, workdir = training.config.seed, _files.absolute(directory)
    pretrained = read_pretrained(training, [workdir])
    return train_seed(training, seed, workdir, pretrained, monitoring)


def load(
    config: ml_collections.ConfigDict,
    data_dir: str | None,
    device_budget_mb: float | None,
    devices: Sequence[jax.Device] | None,
    several_seeds: bool = False,
) -> Training:
    """Checks `config`, loads its data and builds what is trained; arguments as for `train`."""
    hosts.check_connected()
    config = configs.complete(config)
    if config.seeds != 1 and not several_seeds:
        raise ValueError(
            f"seeds must be 1 here, got {config.seeds}: capsjax.runs.seeds.train_seeds trains "
            "several"
        )
    values = configs.flatten(config)
    hosts.check_same(values)
    devices = list(devices or jax.devices())
    task = tasks.create(**config.data, data_dir=data_dir, device_budget_mb=device_budget_mb)
    training = build(config, task, devices)
    terminal = console()
    terminal.print(
        f"{config.model.name}: {training.num_parameters:,} parameters. {task.name}: "
        f"{len(task.train.labels):,} images to train on, {len(task.validation):,} held out. "
        f"{len(devices)} × {devices[0].device_kind}.",
        markup=False,
    )
    if feed.is_streamed(task):
        terminal.print(
            f"The images take {task.train.images.nbytes / 2**20:,.1f} MB, more than "
            "device_budget_mb: they are fed from the host."
        )
    return training


def read_pretrained(training: Training, directories: Sequence[epath.Path]) -> dict[str, Array]:
    """The variables that the runs begin with in place of fresh ones, by path.

    They are not read if all of the runs in `directories` have begun already.
    """
    config = training.config
    if not config.init_from:
        return {}

    def all_begun() -> bool:
        return all(checkpoints.latest_step(directory) is not None for directory in directories)

    if hosts.from_first_host(all_begun):
        return {}
    variables, words = finetuning.read(config.init_from, training.shapes, config.init_layers)
    console().print(words, markup=False)
    return variables


def train_seed(
    training: Training,
    seed: int,
    directory: epath.Path,
    pretrained: Mapping[str, Array],
    monitoring: Monitoring,
) -> Result:
    """Trains one seed to the end, from what `load` and `read_pretrained` returned.

    Raises:
      OSError: the run could not be written; the message says what is left of it.
    """
    config, fresh = training.config_of(seed), training.init_state(seed, pretrained)
    profiler = Profiler(directory, monitoring.profile, training.num_steps)
    now = circumstances.current(training.devices)
    run = Run(config, directory, training.num_steps, now)
    terminal = console()
    with explained(directory), run, Deadline(monitoring.stall_seconds) as deadline:
        state = run.restore(fresh)
        if run.finished:
            terminal.print(f"{directory}: finished before, at step {run.step}.", markup=False)
            return Result(state, run.history)
        if run.step:
            terminal.print(f"{directory}: resuming at step {run.step}.", markup=False)
        if monitoring.profile and run.step >= monitoring.profile[1]:
            terminal.print("The steps to profile were done before: there will be no trace.")
        with (
            jax.default_matmul_precision(run.config.training.matmul_precision),
            contextlib.ExitStack() as resources,
        ):
            loop = _Loop(training, run, state, profiler, deadline, monitoring, resources)
            signum = loop.run_to_the_end()
            deadline.restart()
            run.save(loop.state)
            run.wait()
            signum = signum or loop.signal()  # one that came in the last steps or while saving
        if signum:
            raise Interrupted(signum, run.step)
        if run.stopped_early:
            terminal.print(
                f"{directory}: stopped early, at step {run.step} of {training.num_steps}: the "
                "validation accuracy reached training.stop_at_accuracy, "
                f"{run.config.training.stop_at_accuracy:.2%}.",
                markup=False,
            )
        return Result(jax.tree.map(np.asarray, loop.state), run.history)


class _Loop:
    """The dispatches of one run, from the step that it is at.

    Args:
      state: at that step, on the host.
      resources: closed when the loop is over.

    Attributes:
      state: after the last dispatch, on the devices.
    """

    def __init__(
        self,
        training: Training,
        run: Run,
        state: TrainState,
        profiler: Profiler,
        deadline: Deadline,
        monitoring: Monitoring,
        resources: contextlib.ExitStack,
    ):
        self._training, self._run = training, run
        self._profiler, self._deadline = profiler, deadline
        task, batches, devices = training.task, training.batches, training.devices
        first, last = run.step, training.num_steps
        key = run_key(run.config.seed, run.config.key_version)
        self._validate = _validator(training, deadline)
        self._snapshot_every = monitoring.snapshot_every
        self._take_snapshot: Callable[[TrainState], snapshots.Snapshot] | None = None
        self._snapshot_is_compiled = False
        if self._snapshot_every and hosts.is_first_host():
            self._take_snapshot = snapshots.taker(training.eval_graphdef, task)
        self._dispatch = training.dispatch()
        self.state = replicate(state, devices)
        self._key = replicate(key, devices)
        self._display = resources.enter_context(
            Display(
                console(),
                first=first,
                total=last,
                batch_size=batches.batch_size,
                steps_per_epoch=batches.per_epoch,
                label=f"seed {run.config.seed}  " if training.config.seeds > 1 else "",
            )
        )
        self._signals = resources.enter_context(catch_signals())
        self._source_at = resources.enter_context(
            feed.source_images(task, batches, key, devices, first, last)
        )
        resources.enter_context(profiler)
        resources.enter_context(run.writer(monitoring.tracker))

    def run_to_the_end(self) -> int:
        """Dispatches until the run is finished or a host is signalled; returns the signal, or 0."""
        self._compile()
        run, signum, count = self._run, 0, 1
        while not run.finished:
            self._deadline.restart()
            self._profiler.at(run.step)
            count = self._profiler.cut(run.step, count)
            signum, count = self._agree(count)
            if signum:
                break
            began = time.monotonic()
            count = self._advance(count)
            seconds = time.monotonic() - began
            if run.step % self._training.batches.per_epoch == 0:
                self._end_epoch(run.step // self._training.batches.per_epoch)
            run.flush()
            count = min(MAX_STEPS_PER_DISPATCH, max(1, int(count * DISPATCH_SECONDS / seconds)))
        self._profiler.at(run.step)
        return signum

    def signal(self) -> int:
        """The signal that a host was sent, or 0; all hosts ask at once."""
        return self._agree(0)[0]

    def _agree(self, count: int) -> tuple[int, int]:
        return hosts.agree(self._signals[0] if self._signals else 0, count)

    def _compile(self) -> None:
        self._deadline.suspend()
        source, _ = self._source_at(self._run.step)
        # No step at all.
        self.state, _ = jax.block_until_ready(
            self._dispatch(self.state, source, self._key, np.int32(0))
        )
        hosts.agree(0, 0)  # all hosts have compiled

    def _advance(self, count: int) -> int:
        """Does at most `count` steps, up to the end of the epoch or chunk; returns how many."""
        run, batches = self._run, self._training.batches
        epoch = run.step // batches.per_epoch + 1
        began = time.monotonic()
        source, end = self._source_at(run.step)
        count = min(count, min(epoch * batches.per_epoch, end) - run.step)
        self.state, record = self._dispatch(self.state, source, self._key, np.int32(count))
        metrics = {name: np.asarray(values)[:count] for name, values in record.items()}
        seconds = time.monotonic() - began
        speed = count * batches.batch_size / seconds
        try:
            run.add_steps(metrics, epoch=epoch, images_per_second=speed)
        except Diverged as error:
            raise self._explained(error, source) from None
        last = {name: float(values[-1]) for name, values in metrics.items()}
        self._display.update(run.step, count, seconds, last["loss"], last["accuracy"])
        return count

    def _explained(self, error: Diverged, source: DeviceSource) -> Diverged:
        """`error` with the first number that was not finite."""
        self._deadline.suspend()  # it compiles
        found = self._training.examination()(self.state, source, self._key)
        return self._run.diverged(error, divergence.describe(found))

    def _end_epoch(self, epoch: int) -> None:
        run, began = self._run, time.monotonic()
        accuracy = self._validate(self.state)
        run.end_epoch(epoch, accuracy)
        if self._take_snapshot is not None and epoch % self._snapshot_every == 0:
            if self._snapshot_is_compiled:
                self._deadline.restart()
            else:
                self._deadline.suspend()
            run.add_snapshot(self._take_snapshot(self.state))
            self._snapshot_is_compiled = True
        means, seconds = run.history.epoch_means(epoch), time.monotonic() - began
        self._display.epoch(run.step, epoch, means, accuracy, seconds)
        self._deadline.restart()
        run.save(self.state)


def _validator(training: Training, deadline: Deadline) -> Callable[[TrainState], float | None]:
    """A function from a state to its validation accuracy; to None where nothing is held out."""
    task = training.task
    if not len(task.validation):
        return lambda state: None
    labels = task.validation.labels()
    logits: bool | None = None

    def accuracy(state: TrainState) -> float:
        nonlocal logits
        if logits is None:
            deadline.suspend()  # it compiles; the first batch starts the time again
        else:
            deadline.restart()
        model: Any = nnx.merge(training.eval_graphdef, state.params, state.rest)
        scores = scoring.score(
            model,
            task.validation,
            batch_size=training.batches.batch_size,
            devices=training.devices,
            progress=lambda done: deadline.restart(),
        )
        if logits is None:
            logits = scoring.gives_logits(model, task.input_shape)
        return summaries.accuracy(task.rule, scores, labels, logits=logits).accuracy

    return accuracy
