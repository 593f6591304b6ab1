"""Many processes, one run: how they start, what the first alone does, what they agree on."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar("T")

# A host that is silent for this long is taken for dead by JAX, which then ends the others. Longer
# than `watch.LOST_SECONDS`, whose message says more.
HEARTBEAT_TIMEOUT_SECONDS = 100
# How long a host that failed waits for the others before it ends.
SHUTDOWN_TIMEOUT_SECONDS = 30


def start(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Joins the other processes of the run; to be called before JAX touches a device.

    Without arguments JAX finds the others by itself on Cloud TPU, SLURM, Open MPI and Kubernetes.

    Args:
      coordinator_address: "HOST:PORT" of process 0, with a port that is free there.
      num_processes: of the run.
      process_id: of this process, from 0.

    Raises:
      ValueError: the arguments are incomplete, or nothing was detected.
    """
    given = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < len(given):
        raise ValueError(
            f"{', '.join(missing)} must be given too: coordinator_address, num_processes and "
            "process_id come together, or not at all where JAX detects them (Cloud TPU, SLURM, "
            "Open MPI, Kubernetes)"
        )
    if coordinator_address is not None and not coordinator_address.rpartition(":")[2].isdigit():
        raise ValueError(
            f"coordinator_address must be HOST:PORT of process 0, got {coordinator_address!r}"
        )
    if num_processes is not None and process_id is not None and not 0 <= process_id < num_processes:
        raise ValueError(
            f"process_id must be in [0, num_processes), got {process_id} of {num_processes}"
        )
    # JAX's own handler of SIGTERM would swallow those that come before the loop listens; the loop
    # agrees on where to stop by itself, at the end of a dispatch.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator_address,
            num_processes=num_processes,
            process_id=process_id,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_TIMEOUT_SECONDS,
        )
    except ValueError as error:
        raise ValueError(
            f"the other processes of the run cannot be found ({error}): give "
            "coordinator_address=HOST:PORT of process 0, num_processes and process_id"
        ) from error


def check_started() -> None:
    """Raises ValueError where JAX sees several hosts but nothing connects them."""
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise ValueError(
            f"this is one of {jax.process_count()} processes, which are not connected: start "
            "experiments/train.py with --distributed, or call capsjax.training.hosts.start first"
        )


def is_first() -> bool:
    """Whether this process writes logs, metrics and the config."""
    return jax.process_index() == 0


def from_first(function: Callable[[], T]) -> T:
    """What `function`, called on host 0 alone, returned, on all hosts.

    Args:
      function: its result must be what JSON can hold.

    Raises:
      ValueError: it raised one or an OSError on host 0 (there that error itself).
    """
    if jax.process_count() == 1:
        return function()
    failure: Exception | None = None
    answer: dict[str, Any] = {}
    if is_first():
        try:
            answer = {"result": function()}
        except (ValueError, OSError) as error:
            failure, answer = error, {"error": str(error)}
    answer = json.loads(_broadcast(json.dumps(answer).encode()))
    if failure is not None:
        raise failure
    if "error" in answer:
        raise ValueError(f"host 0: {answer['error']}")
    return answer["result"]


def _broadcast(message: bytes) -> bytes:
    """The message of host 0."""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
    buffer = np.zeros(size, np.uint8)
    if is_first():
        buffer[:] = np.frombuffer(message, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(buffer)).tobytes()


def agree(signum: int, count: int) -> tuple[int, int]:
    """Makes all hosts go on, or stop, in the same way.

    Args:
      signum: of the signal that this host received, 0 for none.
      count: of steps that this host would do next.

    Returns:
      A signal that any host received, and the count of host 0: clocks differ.
    """
    if jax.process_count() == 1:
        return signum, count
    signums, counts = np.asarray(
        multihost_utils.process_allgather(np.asarray([signum, count], np.int32))
    ).T
    return int(signums.max()), int(counts[0])
