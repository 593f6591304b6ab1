"""What a person sees of a run: the terminal, metrics.jsonl, TensorBoard."""

import contextlib
import json
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from etils import epath

from capsjax import _files
from capsjax._extras import extra
from capsjax.runs.history import History
from capsjax.runs.hosts import is_first_host

with extra("train"):
    import rich.progress
    from rich.console import Console
    from tensorboardX import SummaryWriter

SECONDS_BETWEEN_LINES = 60
# The time left is estimated from the steps of this time, with what happens between them.
SPEED_SECONDS = 3600.0


def console() -> Console:
    """Returns the terminal, or plain lines of any length without one. Only host 0 prints."""
    return Console(soft_wrap=True, highlight=False, emoji=False, quiet=not is_first_host())


def say(text: str) -> None:
    console().print(text, markup=False)


class Display:
    """Shows a growing history, from step `first` to `total`.

    On the terminal: a line per epoch; below it a progress bar, or where there is no terminal a line
    a minute. In files: metrics.jsonl and TensorBoard's events. For an object store, where nothing
    can be appended to, they grow in a temporary directory and are uploaded after each epoch; hosts
    but the first write into one that nobody reads.
    """

    def __init__(self, workdir: epath.Path, history: History, *, first: int, total: int):
        self._workdir, self._history = workdir, history
        self._uploads = not _files.is_local(workdir) and is_first_host()
        self._closing = contextlib.ExitStack()
        self._local = Path(workdir)
        if self._uploads or not is_first_host():
            self._local = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
        # Rewritten: it may hold records that are newer than the checkpoint we start from.
        metrics, self._written = self._local / "metrics.jsonl", len(history.records)
        lines = (json.dumps(record) + "\n" for record in history.records)
        _files.write_atomically(metrics, "".join(lines))
        self._file = metrics.open("a")
        last = history.records[-1]["step"] if history.records else 0
        self._events = SummaryWriter(str(self._local / "events"), purge_step=last + 1)
        self._console = console()
        # One of several seeds is in a directory of that name.
        of_several = workdir.name.startswith("seed_")
        self._label = f"{workdir.name.replace('_', ' ')}  " if of_several else ""
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
        self._closing.callback(self._upload)
        for part in (self._file, self._events, self._bar):
            self._closing.enter_context(part)
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def update(self, step: int, images_per_second: float, loss: float, accuracy: float) -> None:
        """Shows the numbers of the last step of a dispatch, and writes new records."""
        self._speed = f"  {images_per_second:,.0f} images/s"
        text = f"loss {loss:.4f}  accuracy {accuracy:.1%}{self._speed}"
        self._bar.update(self._bar.task_ids[0], completed=step, description=text)
        # A log should show that the run is alive in the middle of a long epoch too.
        if self._bar.disable and time.monotonic() - self._printed > SECONDS_BETWEEN_LINES:
            self._print(text)
        # For TensorBoard alone: a history holds no times.
        self._events.add_scalar("train/images_per_second", images_per_second, step)
        self._write_new_records()

    def epoch(self, epoch: int, train: dict[str, float], validation: float | None) -> None:
        """Shows the end of an epoch."""
        held_out = "" if validation is None else f"  validation {validation:.2%}"
        text = f"loss {train['loss']:.4f}  accuracy {train['accuracy']:.2%}{held_out}{self._speed}"
        self._print(text, beginning=f"epoch {epoch:3d}  ")
        self._write_new_records()
        self._events.flush()
        self._upload()

    def _print(self, numbers: str, beginning: str = "") -> None:
        task = self._bar.tasks[0]
        place = f"step {task.completed:.0f}/{task.total:.0f}"
        left = task.time_remaining
        rest = "" if left is None else f"  {timedelta(seconds=round(left))} left"
        self._console.print(f"{self._label}{beginning}{place}  {numbers}{rest}", markup=False)
        self._printed = time.monotonic()

    def _write_new_records(self) -> None:
        for record in self._history.records[self._written :]:
            self._file.write(json.dumps(record) + "\n")
            for name in sorted(record.keys() - {"step", "epoch", "split", "steps"}):
                tag = f"{record['split']}/{name}"
                self._events.add_scalar(tag, record[name], record["step"])
        self._file.flush()
        self._written = len(self._history.records)

    def _upload(self) -> None:
        for file in self._local.rglob("*") if self._uploads else ():
            if file.is_file():
                copy = self._workdir / file.relative_to(self._local).as_posix()
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.read_bytes())
