"""Ends a run that hangs: a collective of several devices waits for ever for one that is gone."""

import contextlib
import faulthandler
import json
import math
import os
import platform
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

import jax

from capsjax.training.metrics import Diverged
from capsjax.training.signals import Interrupted

STALL_SECONDS = 600.0
# Hosts tell one another every PULSE_SECONDS that they are alive.
PULSE_SECONDS = 2.0
LOST_SECONDS = 60.0
# How long a host that failed stays, so that all others hear why.
FAILED_SECONDS = 3 * PULSE_SECONDS
TICK_SECONDS = 0.5
# Errors that all hosts come to at the same point, so that each can leave in the usual way.
ON_ALL_HOSTS = (ValueError, Diverged, Interrupted)
PREFIX = "capsjax/pulse/"


class Watch:
    """Ends the process, with a message, when training stands still or another host is gone.

    A context manager around the work. A hung collective cannot be interrupted, so the process ends
    on the spot, with status 1; what was saved stays. Time is counted in ticks of a thread of its
    own: time in which the whole process was stopped (Ctrl-Z, a sleeping laptop) does not count.

    Args:
      stall_seconds: the longest that one piece of work may take; 0 for no limit.
    """

    def __init__(self, stall_seconds: float = STALL_SECONDS):
        if stall_seconds < 0:
            raise ValueError(f"stall_seconds must be ≥ 0 (0 for no limit), got {stall_seconds}")
        self._limit = stall_seconds or math.inf
        # Sooner than a stall, which the others of a lost host come to: this message says more.
        self._lost_limit = min(LOST_SECONDS, self._limit / 2)
        self._over = threading.Event()
        self._doing, self._idle = "starting", 0.0
        self._failure: str | None = None
        # By host: its last pulse and the time since; host 0 keeps the pulses for all.
        self._pulses: dict[int, dict[str, Any]] = {}
        self._silent = dict.fromkeys(range(jax.process_count()), 0.0)

    def __enter__(self) -> "Watch":
        threads = [self._judge] + [self._exchange] * (jax.process_count() > 1)
        for target in threads:
            threading.Thread(target=target, name="watch", daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if error is not None and jax.process_count() > 1 and not isinstance(error, ON_ALL_HOSTS):
            self._alone(error)
        self._over.set()

    def _alone(self, error: BaseException) -> NoReturn:
        """Ends this process after an error that the other hosts do not have.

        Python's own way out of it would wait for them, and they for this host.
        """
        traceback.print_exception(error)
        if isinstance(error, jax.errors.JaxRuntimeError):
            # A collective failed: most likely because of another host, which `_judge` will name.
            time.sleep(self._lost_limit + 2 * PULSE_SECONDS)
        else:
            self._failure = f"{type(error).__name__}: {error}"[:500]
            time.sleep(FAILED_SECONDS)
        _end(f"{type(error).__name__}, see above")

    def doing(self, what: str, *, limited: bool = True) -> None:
        """The next piece of work begins, which may take `stall_seconds`, or any time."""
        self._doing, self._idle = what, 0.0 if limited else -math.inf

    def _judge(self) -> None:
        """Looks every tick; says what is wrong and ends the process."""
        while not self._over.wait(TICK_SECONDS):
            self._idle += TICK_SECONDS
            for process in self._silent:
                self._silent[process] += TICK_SECONDS
            problem = self._lost() or self._stalled()
            if problem and not self._over.is_set():
                _end(problem)

    def _lost(self) -> str | None:
        if jax.process_count() == 1:
            return None
        if self._failure:
            return None
        pulses = dict(self._pulses)
        for process, pulse in pulses.items():
            if pulse["failed"]:
                return f"{_name(process, pulse)} ended with {pulse['failed']}"
        silent = [p for p in pulses if self._silent[p] > self._lost_limit]
        if not silent:
            return None
        if jax.process_index() in silent:
            silent = [0]  # which relays the pulses: without it nobody is heard, not even we
        names = ", ".join(_name(process, pulses.get(process, {})) for process in silent)
        return (
            f"{names} gave no sign of life for {self._lost_limit:g} seconds: it was killed, "
            "hangs, or is cut off"
        )

    def _stalled(self) -> str | None:
        if self._idle <= self._limit:
            return None
        problem = f"no progress for {self._limit:g} seconds while {self._doing}"
        behind = [
            f"{_name(process, pulse)}: {pulse['doing']}"
            for process, pulse in sorted(self._pulses.items())
            if pulse["doing"] != self._doing
        ]
        if behind:
            return f"{problem}. Other hosts are elsewhere: {'; '.join(behind)}"
        return f"{problem}. A larger --stall_seconds gives slow work more time"

    def _exchange(self) -> None:
        """Tells the other hosts that this one is alive, and hears which of them are."""
        store, beat = _store(), 0
        while not self._over.wait(PULSE_SECONDS):
            beat += 1
            pulse = {
                "name": platform.node(),
                "beat": beat,
                "doing": self._doing,
                "failed": self._failure,
            }
            # While host 0 is away the calls fail or hang, and the silence grows.
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                key = f"{PREFIX}{jax.process_index()}"
                store.key_value_set(key, json.dumps(pulse), allow_overwrite=True)
                for key, value in store.key_value_dir_get(PREFIX):
                    process, pulse = int(key.rpartition("/")[2]), json.loads(value)
                    if pulse != self._pulses.get(process):
                        self._pulses[process], self._silent[process] = pulse, 0.0


def _store():
    """The key-value store of JAX's coordination service, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client


def _name(process: int, pulse: dict[str, Any]) -> str:
    return f"host {process} of {jax.process_count()} ({pulse.get('name', 'name unknown')})"


def _end(problem: str) -> NoReturn:
    whose = f"host {jax.process_index()}: " if jax.process_count() > 1 else ""
    faulthandler.dump_traceback(all_threads=True)
    print(
        f"error: {whose}{problem}. What was saved stays: end what is left of the run on all hosts "
        "and start it again with the same command; it goes on from its last checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
