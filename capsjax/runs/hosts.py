"""Several hosts, one run: how they connect, and what all of them must agree on."""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from capsjax._ledger import differences
from capsjax.runs import process

T = TypeVar("T")

# A host that is silent for this long is taken for dead.
HEARTBEAT_SECONDS = 60.0
# How long a host waits for the others to start.
CONNECT_SECONDS = 300
# How long a host waits for the address of process 0 to be known.
RESOLVE_SECONDS = 15
# How long a host that failed waits for the others before it ends.
SHUTDOWN_SECONDS = 30


def connect(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> None:
    """Connects the processes of a run; to be called before JAX touches a device.

    Without addresses JAX finds the others by itself on Cloud TPU, SLURM, Open MPI and Kubernetes.
    If others do not come within `CONNECT_SECONDS`, this process is ended with a message: JAX's own
    call cannot be interrupted.

    Args:
      coordinator_address: "HOST:PORT" of process 0, with a port that is free there.
      num_processes, process_id: of the run, and of this process, from 0.
      heartbeat_seconds: JAX takes a host that is silent for this long for dead, and ends the
        others with a message that names it.

    Raises:
      OSError: process 0 does not answer.
      ValueError: the arguments are incomplete or out of range, or nothing was detected.
    """
    addresses: dict[str, Any] = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    missing = [name for name, value in addresses.items() if value is None]
    if 0 < len(missing) < len(addresses):
        raise ValueError(
            f"{', '.join(missing)} must be given too: coordinator_address, num_processes and "
            "process_id come together, or not at all where JAX detects them (Cloud TPU, SLURM, "
            "Open MPI, Kubernetes)"
        )
    if heartbeat_seconds < 1:
        raise ValueError(f"heartbeat_seconds must be at least 1, got {heartbeat_seconds}")
    if coordinator_address is not None and num_processes is not None and process_id is not None:
        _check(coordinator_address, num_processes, process_id)
    # JAX's own handler of SIGTERM would swallow signals that arrive before the loop listens; the
    # loop itself agrees on where to stop, at the end of a dispatch.
    jax.config.update("jax_enable_preemption_service", False)
    expected = "processes" if num_processes is None else f"{num_processes} processes"
    message = (
        f"not all {expected} of the run came within {CONNECT_SECONDS} s: start those that are "
        "missing, each with a process_id of its own"
    )
    give_up = threading.Timer(CONNECT_SECONDS, process.fail, (message,))
    give_up.daemon = True
    give_up.start()
    try:
        jax.distributed.initialize(
            **addresses,
            heartbeat_timeout_seconds=round(heartbeat_seconds),
            # Later than `give_up`: JAX would end the process with a stack of C++.
            initialization_timeout=CONNECT_SECONDS + 60,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except ValueError as error:
        raise ValueError(
            f"the other processes of the run cannot be found ({error}): give "
            "coordinator_address=HOST:PORT of process 0, num_processes and process_id"
        ) from error
    finally:
        give_up.cancel()


def _check(address: str, num_processes: int, process_id: int) -> None:
    """Returns when process 0 listens; raises as `connect`."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(
            "coordinator_address must be HOST:PORT of process 0, with a port from 1 to 65535, "
            f"got {address!r}"
        )
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"process_id must be in [0, num_processes), got {process_id} of {num_processes}"
        )
    began = time.monotonic()
    while process_id:  # JAX itself would end in a stack of C++ if nobody answered
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            unknown = isinstance(error, socket.gaierror)  # a name may take a moment to be known
            limit = RESOLVE_SECONDS if unknown else CONNECT_SECONDS
            if time.monotonic() - began > limit:
                raise OSError(
                    f"process 0 did not answer at {address} within {limit} s ({error}): "
                    "start it, or mend the coordinator_address"
                ) from error
        time.sleep(1)


def check_connected() -> None:
    """Raises ValueError where JAX sees several hosts but nothing connects them."""
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise ValueError(
            f"this is one of {jax.process_count()} processes, which are not connected: start "
            "experiments/train.py with --distributed, or call capsjax.runs.hosts.connect first"
        )


def is_first_host() -> bool:
    """Tells whether this process writes logs, metrics and the config."""
    return jax.process_index() == 0


def from_first_host(function: Callable[[], T]) -> T:
    """Calls `function` on host 0 alone; returns its result, which JSON must hold, on all hosts.

    If it raises a ValueError or an OSError there, the other hosts raise a ValueError.
    """
    if jax.process_count() == 1:
        return function()
    failure: Exception | None = None
    answer: dict[str, Any] = {}
    if is_first_host():
        try:
            answer = {"result": function()}
        except (ValueError, OSError) as error:
            failure, answer = error, {"error": str(error)}
    message = np.frombuffer(json.dumps(answer).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
    message = message if is_first_host() else np.zeros(size, np.uint8)
    answer = json.loads(np.asarray(multihost_utils.broadcast_one_to_all(message)).tobytes())
    if failure is not None:
        raise failure
    if "error" in answer:
        raise ValueError(f"host 0: {answer['error']}")
    return answer["result"]


def check_same(values: Mapping[str, Any]) -> None:
    """Raises ValueError on all hosts if one of them has other values, by name, than host 0."""
    if jax.process_count() == 1:
        return
    mine = json.loads(json.dumps(values))
    lines = differences(from_first_host(lambda: mine), mine)
    differing = np.asarray(multihost_utils.process_allgather(np.int32(len(lines)))).nonzero()[0]
    if differing.size:
        what = ":\n  " + "\n  ".join(lines) if lines else ""
        raise ValueError(
            f"process {', '.join(map(str, differing))} was not started with the config of process "
            f"0{what}"
        )


def agree(signum: int, count: int) -> tuple[int, int]:
    """Returns a signal that any host received (0 for none), and the count of host 0: clocks differ.

    The arguments are this host's: the signal that it received and how many steps it would do next.
    """
    if jax.process_count() == 1:
        return signum, count
    signums, counts = np.asarray(
        multihost_utils.process_allgather(np.asarray([signum, count], np.int32))
    ).T
    return int(signums.max()), int(counts[0])
