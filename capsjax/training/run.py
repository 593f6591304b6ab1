"""What the host keeps of one run: its directory, history, checkpoints and logs."""

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import ml_collections
from etils import epath

from capsjax import _files
from capsjax.training import config as configs
from capsjax.training.checkpoints import Checkpoints
from capsjax.training.display import Writer
from capsjax.training.history import Diverged, History, Record
from capsjax.training.parallel import from_first_host
from capsjax.training.snapshots import Snapshot
from capsjax.training.state import TrainState
from capsjax.training.tracking import Tracking

LOCK = ".lock"


class Run:
    """One run on the host. A context manager: leaving it waits for saves under way.

    Args:
      config: complete.
      directory: claimed by `claim_directory`.
      num_steps: after which it is finished.

    Attributes:
      step: number of updates done.
      history: of its metrics.
    """

    def __init__(self, config: ml_collections.ConfigDict, directory: epath.Path, num_steps: int):
        self.config, self.directory = config, directory
        self.step, self.history = 0, History()
        self._num_steps = num_steps
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        self._closing.enter_context(exclusive(self.directory))
        keep = self.config.checkpoints.keep
        self._saver = self._closing.enter_context(Checkpoints(self.directory, keep=keep))
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def restore(self, fresh: TrainState) -> TrainState:
        """The state of the newest intact checkpoint, or `fresh` if there is none."""
        state = fresh
        if self._saver.latest_step() is not None:
            state, self.history = self._saver.restore(fresh)
        self.step = int(state.step)
        return state

    def writer(self, tracker: str = "") -> Writer:
        """For the logs; a context manager of its own, open while steps are done."""
        tracking = Tracking(tracker, self.directory, self.config) if tracker else None
        self._writer = Writer(self.directory, self.history, tracking)
        return self._writer

    @property
    def stopped_early(self) -> bool:
        """Whether `training.stop_at_accuracy` was reached at the end of an epoch."""
        target = self.config.training.stop_at_accuracy
        accuracies = self.history.validation_accuracy().values()
        return target > 0 and any(accuracy >= target for accuracy in accuracies)

    @property
    def finished(self) -> bool:
        """Whether no step is left to do."""
        return self.step == self._num_steps or self.stopped_early

    def add_steps(self, record: Record, *, epoch: int, images_per_second: float) -> None:
        """After a dispatch, with the metrics of each of its steps.

        Raises:
          Diverged: one of them is not finite.
        """
        every = self.config.training.log_every_steps
        self.history.add_steps(self.step, record, every=every, epoch=epoch)
        self.step += len(record["loss"])
        self._writer.add_speed(self.step, images_per_second)

    def end_epoch(self, epoch: int, accuracy: float | None) -> None:
        """At the end of an epoch, with the accuracy on the held-out images."""
        self.history.close_interval(self.step, epoch)
        if accuracy is not None:
            self.history.add_validation(self.step, epoch, accuracy)

    def flush(self) -> None:
        """Writes what is new to the logs."""
        self._writer.flush()

    def save(self, state: TrainState) -> None:
        """Begins to save; returns when `state` may be given away. Saves a step only once."""
        self._saver.save(state, self.config, self.history)

    def wait(self) -> None:
        """Returns when no save is under way."""
        self._saver.wait()

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Adds images and entropies of this step to the logs."""
        self._writer.add_snapshot(self.step, snapshot)

    def diverged(self, error: Diverged, found: str) -> Diverged:
        """`error` with its cause as `found`, and what is left of the run."""
        self.wait()  # for a save under way
        good = self._saver.latest_step()
        stays = (
            "there is no checkpoint yet" if good is None else f"the checkpoint of step {good} stays"
        )
        return Diverged(
            f"{error}: {found}. Training stopped; {stays} in {self.directory}. A lower "
            "optimizer.learning_rate often helps"
        )


def claim_directory(workdir: epath.Path, config: ml_collections.ConfigDict) -> None:
    """Makes `workdir` the directory of this run, unless it is already.

    Raises:
      ValueError: it belongs to another config (the differences are listed), or holds something
        that is not a run. Nothing is changed then.
    """
    file = workdir / "config.json"
    # A start that was killed leaves at most a part of this file.
    if not workdir.exists() or all(
        file.name in path.name and path.name.endswith(_files.TEMPORARY)
        for path in workdir.iterdir()
    ):
        workdir.mkdir(parents=True, exist_ok=True)
        _files.write_atomically(file, json.dumps(configs.to_json(config), indent=2) + "\n")
        return
    if not file.exists():
        raise ValueError(
            f"workdir {workdir} is not empty and not a run of capsjax (it has no "
            "config.json): choose another directory. Nothing was changed"
        )
    try:
        old = configs.from_json(json.loads(file.read_text()))
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}): the run is damaged. Nothing was changed"
        ) from error
    if lines := configs.conflicts(old, config):
        raise ValueError(
            f"workdir {workdir} holds a run of another config; choose another directory, or "
            "remove this one to start afresh. It was made with → you asked for:\n  "
            + "\n  ".join(lines)
        )
    if configs.differences(old, config):
        _files.write_atomically(file, json.dumps(configs.to_json(config), indent=2) + "\n")


@contextlib.contextmanager
def exclusive(workdir: epath.Path) -> Iterator[None]:
    """Keeps other processes from training in `workdir` while in the block.

    In an object store, or on a file system without locks, nothing is locked.

    Raises:
      ValueError: another process is training there. Nothing was changed.
    """
    with contextlib.ExitStack() as held:

        def take() -> None:
            try:
                free = held.enter_context(_files.lock(Path(workdir) / LOCK, wait=False))
            except OSError as error:
                warnings.warn(
                    f"{error}; a second process could train in the same directory", stacklevel=2
                )
                return
            if not free:
                raise ValueError(
                    f"another process is training in {workdir}: wait for it, or choose another "
                    "directory. Nothing was changed"
                )

        if _files.is_local(workdir) and os.name == "posix":
            from_first_host(take)
        yield
