"""Stopping at a good moment when asked to."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """Training was stopped by a signal, after saving.

    Attributes:
      signum: which one.
    """

    def __init__(self, signum: int, step: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}; saved at step {step}")
        self.signum = signum


@contextmanager
def received() -> Iterator[list[int]]:
    """A list that grows when Ctrl-C or SIGTERM arrives; a second one acts as it would without.

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
