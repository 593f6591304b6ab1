"""What a person sees of a run: the terminal, metrics.jsonl, TensorBoard."""

import contextlib
import io
import json
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from etils import epath

from capsjax import _files
from capsjax._extras import extra
from capsjax.runs.history import History
from capsjax.runs.hosts import is_first_host
from capsjax.runs.output import LenientOutput
from capsjax.runs.snapshots import Snapshot
from capsjax.runs.tracking import Tracking

with extra("train"):
    import rich.progress
    from rich.console import Console

SECONDS_BETWEEN_LINES = 60
# An object of a store cannot be appended to, so files are uploaded whole and not at each dispatch.
SECONDS_BETWEEN_UPLOADS = 60.0


def console() -> Console:
    """Returns the terminal, or plain lines of any length without one. Only host 0 prints."""
    quiet = not is_first_host()
    out: Any = LenientOutput(sys.stdout) if sys.stdout else io.StringIO()  # None where it is closed
    return Console(file=out, soft_wrap=True, highlight=False, quiet=quiet)


def say(text: str) -> None:
    """Prints a line of plain text on the terminal of host 0."""
    console().print(text, markup=False)


class Display:
    """A line per epoch; below it a progress bar, or where there is no terminal a line a minute.

    Args:
      console: where to print.
      first, total: the step that the run is at, and its last.
      batch_size: images per step.
      steps_per_epoch: to know what ends of epochs are still to come.
      label: what each line begins with, such as the seed where there are several.
    """

    def __init__(
        self,
        console: Console,
        *,
        first: int,
        total: int,
        batch_size: int,
        steps_per_epoch: int,
        label: str = "",
    ):
        self._console, self._label = console, label
        self._total, self._batch_size, self._per_epoch = total, batch_size, steps_per_epoch
        # Times of the steps done, without compilation, and of each end of an epoch.
        self._steps, self._seconds, self._ends = 0, 0.0, list[float]()
        self._bar = rich.progress.Progress(
            # All of it fits 80 columns.
            rich.progress.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            rich.progress.BarColumn(bar_width=10),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.TextColumn("{task.fields[left]} left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._printed = time.monotonic()
        self._task = self._bar.add_task("compiling", total=total, completed=first, left="?")

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def update(self, step: int, count: int, seconds: float, loss: float, accuracy: float) -> None:
        """Shows the numbers of the last step after a dispatch of `count` steps."""
        self._steps, self._seconds = self._steps + count, self._seconds + seconds
        text = f"loss {loss:.4f}  accuracy {accuracy:.1%}  {self._speed():,.0f} images/s"
        self._bar.update(self._task, completed=step, description=text, left=self._left(step))
        # A log should show that the run is alive in the middle of a long epoch too.
        if self._bar.disable and time.monotonic() - self._printed > SECONDS_BETWEEN_LINES:
            self._print(f"step {step}/{self._total}  {text}  {self._left(step)} left")

    def _print(self, line: str) -> None:
        self._console.print(self._label + line, markup=False)
        self._printed = time.monotonic()

    def epoch(
        self,
        step: int,
        epoch: int,
        train: dict[str, float],
        validation: float | None,
        seconds: float,
    ) -> None:
        """Shows the end of an epoch, which took `seconds` to validate and show."""
        self._ends.append(seconds)
        held_out = "" if validation is None else f"  validation {validation:.2%}"
        self._print(
            f"epoch {epoch:3d}  step {step}/{self._total}  loss {train['loss']:.4f}  "
            f"accuracy {train['accuracy']:.2%}{held_out}  {self._speed():,.0f} images/s  "
            f"{self._left(step)} left"
        )

    def _speed(self) -> float:
        return self._steps * self._batch_size / self._seconds

    def _left(self, step: int) -> timedelta:
        steps = self._total - step
        seconds = steps * self._seconds / self._steps
        if self._ends[1:]:  # the first one compiles
            seconds += -(-steps // self._per_epoch) * min(self._ends[1:])
        return timedelta(seconds=round(seconds))


class Writer:
    """Keeps metrics.jsonl, TensorBoard's events and a tracker equal to a growing history.

    A local `workdir` is written to directly. For an object store the files grow in a temporary
    directory and are uploaded every minute and at the end: what a crash loses of them is in the
    checkpoint's history, from which they are rewritten. Hosts but the first write into a temporary
    directory that nobody reads.
    """

    def __init__(self, workdir: epath.Path, history: History, tracking: Tracking | None = None):
        self._history, self._written = history, len(history.records)
        self._tracking, self._closing = tracking, contextlib.ExitStack()
        self._store = None if _files.is_local(workdir) or not is_first_host() else workdir
        if _files.is_local(workdir) and is_first_host():
            self._local = Path(workdir)
        else:
            self._local = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
            self._closing.callback(self._upload)
        # Rewritten: it may hold records that are newer than the checkpoint we start from.
        metrics = self._local / "metrics.jsonl"
        lines = (json.dumps(record) + "\n" for record in history.records)
        _files.write_atomically(metrics, "".join(lines))
        self._file = self._closing.enter_context(metrics.open("a"))
        with extra("train"):
            from tensorboardX import SummaryWriter

        last = history.records[-1]["step"] if history.records else 0
        self._events = SummaryWriter(str(self._local / "events"), purge_step=last + 1)
        self._closing.callback(self._events.close)
        self._closing.enter_context(tracking or contextlib.nullcontext())
        self._uploaded = time.monotonic()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def flush(self) -> None:
        """Writes the records that are new."""
        for record in self._history.records[self._written :]:
            self._file.write(json.dumps(record) + "\n")
            names = record.keys() - {"step", "epoch", "split", "steps"}
            values = {f"{record['split']}/{name}": record[name] for name in sorted(names)}
            for tag, value in values.items():
                self._events.add_scalar(tag, value, record["step"])
            if self._tracking is not None:
                self._tracking.log(record["step"], values)
        self._file.flush()
        self._written = len(self._history.records)
        if time.monotonic() - self._uploaded > SECONDS_BETWEEN_UPLOADS:
            self._events.flush()
            self._upload()

    def add_speed(self, step: int, images_per_second: float) -> None:
        """Adds a rate for TensorBoard alone: times are not part of the history."""
        self._events.add_scalar("train/images_per_second", images_per_second, step)

    def add_snapshot(self, step: int, snapshot: Snapshot) -> None:
        """Adds a snapshot for TensorBoard alone: it is not part of the history."""
        for tag, value in snapshot.scalars.items():
            self._events.add_scalar(tag, value, step)
        for tag, picture in snapshot.pictures.items():
            self._events.add_image(tag, picture, step, dataformats="HWC")

    def _upload(self) -> None:
        self._uploaded = time.monotonic()
        if self._store is not None:
            _files.copy(epath.Path(self._local), self._store)
