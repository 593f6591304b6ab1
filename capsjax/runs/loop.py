"""From a config to a trained network."""

import contextlib
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

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
from capsjax.models import ScoreKind
from capsjax.runs import about, checkpoints, finetuning, hosts
from capsjax.runs.about import About
from capsjax.runs.directory import claimed, write
from capsjax.runs.display import Display, say
from capsjax.runs.history import Diverged, History
from capsjax.runs.process import Deadline, Interrupted, catch_signals
from capsjax.runs.saving import Checkpoints
from capsjax.training import config as configs
from capsjax.training import divergence, feed
from capsjax.training.build import MAX_STEPS_PER_DISPATCH, Training, build
from capsjax.training.parallel import replicate
from capsjax.training.state import TrainState
from capsjax.training.step import run_key

# Long enough to hide the host's work between dispatches, short enough for Ctrl-C to take effect.
DISPATCH_SECONDS = 2.0
IMAGES = "training images"  # their number, among the circumstances of a run


class Result(NamedTuple):
    """The end of a training run."""

    state: TrainState  #: on the host
    history: History  #: `history.validation_accuracy()` has the accuracies by step


def train(
    config: ml_collections.ConfigDict,
    directory: str | os.PathLike[str],
    *,
    data_dir: str | None = None,
    device_budget_mb: float | None = DEVICE_BUDGET_MB,
    devices: Sequence[jax.Device] | None = None,
    stall_seconds: float = 600.0,
) -> Result:
    """Trains the network that `config` describes; resumes what an earlier call left unfinished.

    Args:
      config: see `capsjax.training.config.default`; of one seed (`seeds.train_seeds` trains
        several). With several hosts, that of host 0 is trained.
      directory: for the config, metrics and checkpoints; local, or any address of etils.epath.
      data_dir: as for `capsjax.data.load`.
      device_budget_mb: source images of a split that take more when decoded (in 2**20 bytes) stay
        on the host or in their files and are fed to the devices. The examples are the same.
      devices: those of all hosts by default; each batch is divided over them.
      stall_seconds: the longest that one piece of work may take before the process is ended; 0 for
        no limit.

    Raises:
      ValueError: a config that contradicts itself, the data, the devices or the directory.
      Diverged: a loss, gradient or score is not finite. The last good checkpoint stays.
      Interrupted: by Ctrl-C or SIGTERM, after saving.
    """
    config, devices = agreed(config), list(devices or jax.devices())
    if config.seeds != 1:
        raise ValueError(f"seeds must be 1 here, got {config.seeds}: see runs.seeds.train_seeds")
    if config.init_layers and not config.init_from:
        raise ValueError(f"init_layers is {config.init_layers}, but init_from is empty")
    create = partial(tasks.create, data_dir=data_dir, device_budget_mb=device_budget_mb)
    task = hosts.together(lambda: create(**config.data))
    training = build(config, task, devices)
    say(
        f"{config.model.name}: {training.num_parameters:,} parameters. {task.name}: "
        f"{len(task.train.labels):,} images to train on, {len(task.validation):,} held out. "
        f"{len(devices)} × {devices[0].device_kind}."
    )
    if feed.is_streamed(task):
        size = f"{task.train.images.nbytes / 2**20:,.1f} MB"
        say(f"The images take {size}, more than device_budget_mb: they are fed from the host.")
    workdir, config = _files.absolute(directory), training.config
    pretrained: dict[str, Array] = {}
    if config.init_from and not hosts.from_first_host(lambda: checkpoints.finished(workdir)):
        read = partial(finetuning.read, config.init_from, training.shapes, config.init_layers)
        pretrained, words = hosts.together(read)
        say(words)
    with contextlib.ExitStack() as stack:
        fresh = training.init_state(pretrained)
        run = Run(training, workdir, fresh, stack, stall_seconds=stall_seconds)
        if run.finished:
            say(f"{workdir}: finished before, at step {run.step}.")
            return Result(run.state, run.history)
        if run.step:
            say(f"{workdir}: resuming at step {run.step}.")
        run.start(stack)
        signum = run.to_the_end()
    if signum:
        raise Interrupted(signum, run.step)
    if run.stopped_early:
        target = f"training.stop_at_accuracy, {config.training.stop_at_accuracy:.2%}"
        place = f"stopped early, at step {run.step} of {training.num_steps}"
        say(f"{workdir}: {place}: the validation accuracy reached {target}.")
    return Result(jax.tree.map(np.asarray, run.state), run.history)


def agreed(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Returns `config`, checked; with several hosts, that of host 0."""
    hosts.check_connected()
    own = configs.complete(config)
    return configs.from_json(hosts.from_first_host(lambda: configs.to_json(own)))


class Run:
    """The dispatches of one run: its `state` after `step` updates, and its `history`.

    What it opens is closed by the `stack` passed to it.
    """

    def __init__(
        self,
        training: Training,
        directory: epath.Path,
        fresh: TrainState,
        stack: contextlib.ExitStack,
        *,
        stall_seconds: float,
    ):
        """Claims the directory, and takes the state of its newest intact checkpoint, or `fresh`."""
        self.config, self.history = training.config.copy_and_resolve_references(), History()
        self._training, self._directory = training, directory
        self._warm = False  # whether an epoch has ended in this process
        self.config.key_version = stack.enter_context(claimed(directory, self.config))
        keep, steps = self.config.checkpoints.keep, training.batches.per_epoch
        saver = Checkpoints(directory, keep=keep, steps_per_epoch=steps)
        self._saver = stack.enter_context(saver)
        self._deadline = stack.enter_context(Deadline(stall_seconds))
        self.state, saved = fresh, None
        if self._saver.latest_step() is not None:
            self.state, saved = self._saver.restore(fresh)
            self.history = saved.history
        self._circumstances = about.current_circumstances(training.devices)
        self._circumstances[IMAGES] = num = len(training.task.train.labels)
        if saved and (then := saved.circumstances.get(IMAGES, num)) != num:
            raise ValueError(
                f"the run in {directory} has trained on {then} images, now there are {num}: images "
                "held out now may have been trained on. Train in another directory, with "
                f"init_from={directory}"
            )
        if saved and hosts.is_first_host():
            about.warn_of_changes(saved.circumstances, self._circumstances)
        self.step = int(self.state.step)
        if self.history.epochs > (epochs := self.config.training.epochs):
            raise ValueError(
                f"training.epochs is {epochs}, but the run in {directory} is in epoch "
                f"{self.history.epochs} already: ask for as many, or choose another directory"
            )
        hosts.from_first_host(lambda: write(directory, self.config))

    def start(self, stack: contextlib.ExitStack) -> None:
        """Puts the state on the devices, and opens what feeds, shows and records the steps."""
        training, task, directory = self._training, self._training.task, self._directory
        first, last = self.step, training.num_steps
        stack.enter_context(jax.default_matmul_precision(self.config.training.matmul_precision))
        key = run_key(self.config.seed, self.config.key_version)
        self._labels = task.validation.labels()
        self._dispatch = training.dispatch()
        self._signals = stack.enter_context(catch_signals())
        self._source_at = stack.enter_context(
            feed.source_images(task, training.batches, key, training.devices, first, last)
        )
        self.state, self._key = replicate((self.state, key), training.devices)
        display = Display(directory, self.history, first=first, total=last)
        self._display = stack.enter_context(display)

    @property
    def stopped_early(self) -> bool:
        target = self.config.training.stop_at_accuracy
        return target > 0 and max(self.history.validation_accuracy().values(), default=0) >= target

    @property
    def finished(self) -> bool:
        return self.step >= self._training.num_steps or self.stopped_early

    def to_the_end(self) -> int:
        """Dispatches to the end or a signal, and saves; returns the signal, or 0."""
        self._compile()
        signum, count = 0, 1
        while not self.finished:
            self._deadline.restart()
            signum, count = self._agree(count)
            if signum:
                break
            began = time.monotonic()
            try:
                count = self._advance(count)
            except Diverged as error:
                raise self._explained(error) from None
            seconds = time.monotonic() - began
            if self.step % self._training.batches.per_epoch == 0:
                self._end_epoch(self.step // self._training.batches.per_epoch)
            count = min(MAX_STEPS_PER_DISPATCH, max(1, int(count * DISPATCH_SECONDS / seconds)))
        self._save()
        self._saver.wait()
        return signum or self._agree(0)[0]

    def _agree(self, count: int) -> tuple[int, int]:
        return hosts.agree(self._signals[0] if self._signals else 0, count)

    def _compile(self) -> None:
        self._deadline.suspend()
        source, _ = self._source_at(self.step)
        state, _ = self._dispatch(self.state, source, self._key, np.int32(0))  # no step at all
        self.state = jax.block_until_ready(state)
        hosts.agree(0, 0)  # all hosts have compiled

    def _advance(self, count: int) -> int:
        """Does at most `count` steps, up to the end of the epoch or chunk; returns how many."""
        batches, began = self._training.batches, time.monotonic()
        epoch = self.step // batches.per_epoch + 1
        source, end = self._source_at(self.step)
        count = min(count, min(epoch * batches.per_epoch, end) - self.step)
        self.state, record = self._dispatch(self.state, source, self._key, np.int32(count))
        metrics = {name: values[:count] for name, values in jax.device_get(record).items()}
        speed = count * batches.batch_size / (time.monotonic() - began)
        every = self.config.training.log_every_steps
        self.history.add_steps(self.step, metrics, every=every, epoch=epoch)
        self.step += count
        last = {name: float(values[-1]) for name, values in metrics.items()}
        self._display.update(self.step, speed, last["loss"], last["accuracy"])
        return count

    def _explained(self, error: Diverged) -> Diverged:
        """Adds to `error` the first number that was not finite, and what is left of the run."""
        self._deadline.suspend()  # it compiles
        source, _ = self._source_at(self.step)
        examined = self._training.examination()(self.state, source, self._key)
        self._saver.wait()
        good = self._saver.latest_step()
        stays = "no checkpoint yet" if good is None else f"the checkpoint of step {good} stays"
        return Diverged(
            f"{error}: {divergence.describe(examined)}. Training stopped; {stays} in "
            f"{self._directory}. A lower optimizer.learning_rate often helps"
        )

    def _end_epoch(self, epoch: int) -> None:
        if not self._warm:
            self._deadline.suspend()  # it compiles
        self._warm = True
        accuracy = self._validation_accuracy()
        self.history.close_interval(self.step, epoch)
        if accuracy is not None:
            self.history.add_validation(self.step, epoch, accuracy)
        self._display.epoch(epoch, self.history.epoch_means(epoch), accuracy)
        self._deadline.restart()
        self._save()

    def _validation_accuracy(self) -> float | None:
        if not len(self._labels):  # none are held out
            return None
        training, task = self._training, self._training.task
        scores = scoring.score(
            nnx.merge(training.eval_graphdef, self.state.params, self.state.rest),
            task.validation,
            batch_size=training.batches.batch_size,
            devices=training.devices,
            progress=lambda done: self._deadline.restart(),
        )
        if not np.isfinite(scores).all():
            raise Diverged(
                f"scores of held-out images are not finite after step {self.step}. Training "
                "stopped; a lower optimizer.learning_rate often helps"
            )
        logits = training.score_kind is ScoreKind.LOGITS
        summarize = summaries.summarize_multi_label
        return summarize(task.rule, scores, self._labels, logits=logits).accuracy

    def _save(self) -> None:
        self._saver.save(self.state, About(self.config, self.history, self._circumstances))
