"""The process of a run: where it keeps its programs, and how it ends early."""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import jax

from capsjax._files import cache_dir

LINGER_SECONDS = 40.0  # how long other hosts have to hear of the end of this one
# A few large programs take most of a start; the many small ones are not worth their files.
MIN_COMPILE_SECONDS = 0.2


def cache_programs(directory: Path | None = None) -> None:
    """Turns on JAX's persistent compilation cache, so that a second start compiles nothing.

    JAX's own settings take precedence: JAX_COMPILATION_CACHE_DIR is another place (which may be an
    address such as gs://bucket/compiled), JAX_ENABLE_COMPILATION_CACHE=false turns it off.
    """
    if jax.config.values["jax_compilation_cache_dir"] is None:
        place = directory or cache_dir() / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)


class Interrupted(Exception):
    """Training was stopped by the signal number `signum`, after saving."""

    def __init__(self, signum: int, step: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}; saved at step {step}")
        self.signum = signum


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Yields a list that grows at Ctrl-C or SIGTERM; a second one acts as if not caught.

    Signals reach the main thread only; in another thread the list stays empty.
    """
    numbers: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield numbers
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def note(signum: int, frame: FrameType | None) -> None:
        numbers.append(signum)
        signal.signal(signum, before[signal.Signals(signum)])

    for signum in before:
        signal.signal(signum, note)
    try:
        yield numbers
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def fail(message: str, *, hosts: int = 1) -> NoReturn:
    """Ends the process with status 1 and a message, even if a save that failed is still awaited.

    When a save fails, Orbax leaves threads behind that wait for it, and Python would wait for them.
    """
    print(f"error: {message}", file=sys.stderr, flush=True)
    if hosts == 1:
        sys.stdout.flush()
        os._exit(1)
    timer = threading.Timer(LINGER_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
    sys.exit(1)


class Deadline:
    """Ends the process when one piece of work takes longer than `seconds`; 0 for no limit.

    A hung collective cannot be interrupted, so the process ends on the spot, with status 1 and the
    tracebacks of all threads on stderr.
    """

    def __init__(self, seconds: float):
        self._seconds = min(seconds, threading.TIMEOUT_MAX)

    def __enter__(self) -> "Deadline":
        self.restart()
        return self

    def __exit__(self, *exception: object) -> None:
        self.suspend()

    def restart(self) -> None:
        """Starts the time of the next piece of work."""
        if self._seconds:
            # In a notebook sys.stderr is not a file of the system's; file 2 is stderr everywhere.
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=2)

    def suspend(self) -> None:
        """Stops the time: what comes next, such as compiling, may take as long as it takes."""
        faulthandler.cancel_dump_traceback_later()
