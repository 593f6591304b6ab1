"""What a person sees of a run."""

import sys
import time
from datetime import timedelta

import rich.progress
from rich.console import Console

from capsjax.training import hosts


def console() -> Console:
    """The terminal; where there is none, plain lines of any length. Only host 0 prints."""
    quiet = not hosts.is_first()
    return Console(file=sys.stdout, soft_wrap=True, highlight=False, quiet=quiet)


SECONDS_BETWEEN_LINES = 60


class Display:
    """A line per epoch; below it a progress bar, or where there is no terminal a line a minute."""

    def __init__(self, console: Console, *, first: int, total: int, batch_size: int):
        self._console = console
        self._first, self._total, self._batch_size = first, total, batch_size
        self._began = time.monotonic()
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

    def restart_clock(self) -> None:
        """After compilation: the time from here tells how fast the steps are."""
        self._began = time.monotonic()

    def update(self, step: int, loss: float, accuracy: float) -> None:
        """After each dispatch: the numbers of its last step."""
        text = f"loss {loss:.4f}  accuracy {accuracy:.1%}  {self._speed(step):,.0f} images/s"
        self._bar.update(self._task, completed=step, description=text, left=self._left(step))
        # A log should show that the run is alive in the middle of a long epoch too.
        if self._bar.disable and time.monotonic() - self._printed > SECONDS_BETWEEN_LINES:
            self._print(f"step {step}/{self._total}  {text}  {self._left(step)} left")

    def _print(self, line: str) -> None:
        self._console.print(line)
        self._printed = time.monotonic()

    def epoch(
        self,
        step: int,
        epoch: int,
        train: dict[str, float],
        validation: float | None,
        of: str = "",
    ) -> None:
        """At the end of an epoch; `of` says of which run, where several are trained."""
        held_out = "" if validation is None else f"  validation {validation:.2%}"
        self._print(
            f"{of}epoch {epoch:3d}  step {step}/{self._total}  loss {train['loss']:.4f}  "
            f"accuracy {train['accuracy']:.2%}{held_out}  {self._speed(step):,.0f} images/s  "
            f"{self._left(step)} left"
        )

    def _speed(self, step: int) -> float:
        return (step - self._first) * self._batch_size / (time.monotonic() - self._began)

    def _left(self, step: int) -> timedelta:
        seconds = (self._total - step) * self._batch_size / self._speed(step)
        return timedelta(seconds=round(seconds))
