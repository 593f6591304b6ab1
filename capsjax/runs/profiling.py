"""Traces of a running training, at the steps that were asked for."""

import tempfile
from pathlib import Path

import jax
from etils import epath

from capsjax import _files
from capsjax.runs.hosts import is_first_host


class Profiler:
    """Writes a trace of the steps START up to but not STOP, counted from 0, into `workdir`/profile.

    A context manager around the training; host 0 alone writes, of its own devices. Dispatches end
    where a profile begins or ends; their length cannot change a result.
    """

    def __init__(self, workdir: epath.Path, steps: tuple[int, int] | None, total: int):
        if steps is not None and not 0 <= steps[0] < steps[1] <= total:
            raise ValueError(
                f"profile must be START:STOP with 0 ≤ START < STOP ≤ {total}, the steps of the "
                f"run, got {steps[0]}:{steps[1]}"
            )
        self._workdir = workdir
        self._start, self._stop = steps or (total, total)
        self._tracing: tempfile.TemporaryDirectory | None = None

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *exception: object) -> None:
        self._end_trace()

    def cut(self, step: int, count: int) -> int:
        """Returns the steps after `step` until something begins or ends, at most `count`."""
        return min([count, *(event - step for event in (self._start, self._stop) if event > step)])

    def at(self, step: int) -> None:
        """Begins and ends what is due at `step`; to be called between dispatches."""
        if step >= self._stop:
            self._end_trace()
        elif step >= self._start and self._tracing is None and is_first_host():
            # The trace is written here first: the profiler cannot write to object stores.
            self._tracing = tempfile.TemporaryDirectory()
            jax.profiler.start_trace(self._tracing.name)

    def _end_trace(self) -> None:
        if self._tracing is not None:
            jax.profiler.stop_trace()
            _files.upload(Path(self._tracing.name), self._workdir / "profile")
            self._tracing.cleanup()
            self._tracing = None
