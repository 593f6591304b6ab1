"""What a person sees of a run: the terminal, metrics.jsonl, TensorBoard."""

import contextlib
import json
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
from capsjax.runs.snapshots import Snapshot

with extra("train"):
    import rich.progress
    from rich.console import Console

SECONDS_BETWEEN_LINES = 60
# An object of a store cannot be appended to, so files are uploaded whole and not at each dispatch.
SECONDS_BETWEEN_UPLOADS = 60.0
# The time left is estimated from the steps of this time, with what happens between them.
SPEED_SECONDS = 3600.0


def console() -> Console:
    """Returns the terminal, or plain lines of any length without one. Only host 0 prints."""
    return Console(soft_wrap=True, highlight=False, quiet=not is_first_host())


def say(text: str) -> None:
    """Prints a line of plain text on the terminal of host 0."""
    console().print(text, markup=False)


class Display:
    """A line per epoch; below it a progress bar, or where there is no terminal a line a minute.

    Args:
      first, total: the step that the run is at, and its last.
      label: what each line begins with, such as the seed where there are several.
    """

    def __init__(self, *, first: int, total: int, label: str = ""):
        self._console, self._label = console(), label
        self._bar = rich.progress.Progress(
            # All of it fits 80 columns.
            rich.progress.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            rich.progress.BarColumn(bar_width=10),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            speed_estimate_period=SPEED_SECONDS,
        )
        self._printed, self._speed = time.monotonic(), ""
        self._bar.add_task("compiling", total=total, completed=first)

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def update(self, step: int, images_per_second: float, loss: float, accuracy: float) -> None:
        """Shows the numbers of the last step of a dispatch."""
        self._speed = f"  {images_per_second:,.0f} images/s"
        text = f"loss {loss:.4f}  accuracy {accuracy:.1%}{self._speed}"
        self._bar.update(self._bar.task_ids[0], completed=step, description=text)
        # A log should show that the run is alive in the middle of a long epoch too.
        if self._bar.disable and time.monotonic() - self._printed > SECONDS_BETWEEN_LINES:
            self._print(text)

    def epoch(self, epoch: int, train: dict[str, float], validation: float | None) -> None:
        """Shows the end of an epoch."""
        held_out = "" if validation is None else f"  validation {validation:.2%}"
        self._print(
            f"loss {train['loss']:.4f}  accuracy {train['accuracy']:.2%}{held_out}{self._speed}",
            beginning=f"epoch {epoch:3d}  ",
        )

    def _print(self, numbers: str, beginning: str = "") -> None:
        task = self._bar.tasks[0]
        place = f"step {task.completed:.0f}/{task.total:.0f}"
        left = task.time_remaining
        rest = "" if left is None else f"  {timedelta(seconds=round(left))} left"
        self._console.print(f"{self._label}{beginning}{place}  {numbers}{rest}", markup=False)
        self._printed = time.monotonic()


class Writer:
    """Keeps metrics.jsonl, TensorBoard's events and a tracker equal to a growing history.

    A local `workdir` is written to directly. For an object store the files grow in a temporary
    directory and are uploaded every minute and at the end: what a crash loses of them is in the
    checkpoint's history, from which they are rewritten. Hosts but the first write into a temporary
    directory that nobody reads. `tracker` is what `tracking.start` returns.
    """

    def __init__(self, workdir: epath.Path, history: History, tracker: Any = None):
        self._history, self._written = history, len(history.records)
        self._workdir, self._tracker = workdir, tracker
        self._closing = contextlib.ExitStack()
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
        if tracker is not None:
            self._closing.callback(tracker.finish)
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
            self.add_scalars(record["step"], values)
            if self._tracker is not None:
                self._tracker.log(values, step=record["step"])
        self._file.flush()
        self._written = len(self._history.records)
        if time.monotonic() - self._uploaded > SECONDS_BETWEEN_UPLOADS:
            self._events.flush()
            self._upload()

    def add_scalars(self, step: int, values: dict[str, float]) -> None:
        """Adds numbers for TensorBoard alone; such as times, which are not part of the history."""
        for tag, value in values.items():
            self._events.add_scalar(tag, value, step)

    def add_snapshot(self, step: int, snapshot: Snapshot) -> None:
        """Adds a snapshot for TensorBoard alone: it is not part of the history."""
        self.add_scalars(step, snapshot.scalars)
        for tag, picture in snapshot.pictures.items():
            self._events.add_image(tag, picture, step, dataformats="HWC")

    def _upload(self) -> None:
        self._uploaded = time.monotonic()
        if not _files.is_local(self._workdir) and is_first_host():
            _files.upload(self._local, self._workdir)
