"""What the host keeps of one run: its directory, history, checkpoints and logs."""

import contextlib

import ml_collections
from etils import epath

from capsjax.runs.about import About
from capsjax.runs.circumstances import Circumstances, warn_of_changes
from capsjax.runs.directory import claimed
from capsjax.runs.display import Writer
from capsjax.runs.history import Diverged, History, Record
from capsjax.runs.hosts import is_first_host
from capsjax.runs.saving import Checkpoints
from capsjax.runs.snapshots import Snapshot
from capsjax.runs.tracking import Tracking
from capsjax.training.state import TrainState


class Run:
    """One run on the host. A context manager, in which no other process trains in the directory.

    Leaving it waits for saves under way.

    Args:
      config: complete.
      directory: for all that is kept.
      num_steps: after which it is finished.
      circumstances: in which it is trained now.

    Attributes:
      step: number of updates done.
      history: of its metrics.
    """

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        directory: epath.Path,
        num_steps: int,
        circumstances: Circumstances,
    ):
        self.config, self.directory = config, directory
        self.step, self.history = 0, History()
        self._num_steps, self._circumstances = num_steps, circumstances

    def __enter__(self) -> "Run":
        """Raises ValueError as `claimed`."""
        keep = self.config.checkpoints.keep
        with contextlib.ExitStack() as opening:
            claim = opening.enter_context(claimed(self.directory, self.config))
            self.config.key_version, self._check_claim = claim
            self._saver = opening.enter_context(Checkpoints(self.directory, keep=keep))
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def restore(self, fresh: TrainState) -> TrainState:
        """The state of the newest intact checkpoint, or `fresh` if there is none."""
        state = fresh
        if self._saver.latest_step() is not None:
            state, saved = self._saver.restore(fresh, self.config)
            self.history = saved.history
            if is_first_host():
                warn_of_changes(saved.circumstances, self._circumstances)
        self.step = int(state.step)
        return state

    def writer(self, tracker: str = "") -> Writer:
        """The writer of the logs: a context manager, open while steps are done."""
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
        """Adds the metrics of each step of a dispatch.

        Raises:
          Diverged: one of them is not finite.
        """
        every = self.config.training.log_every_steps
        self.history.add_steps(self.step, record, every=every, epoch=epoch)
        self.step += len(record["loss"])
        self._writer.add_speed(self.step, images_per_second)

    def end_epoch(self, epoch: int, accuracy: float | None) -> None:
        """Ends an epoch and adds its accuracy on the held-out images."""
        self.history.close_interval(self.step, epoch)
        if accuracy is not None:
            self.history.add_validation(self.step, epoch, accuracy)

    def flush(self) -> None:
        """Writes what is new to the logs."""
        self._writer.flush()

    def save(self, state: TrainState) -> None:
        """Begins to save, once a step; returns when the buffers of `state` may be donated.

        Raises:
          OSError: the directory or its lock was removed; another process may be training here.
        """
        self._check_claim()
        self._saver.save(state, About(self.config, self.history, self._circumstances))

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
