"""Several hosts, one run: how they connect, and what all of them must agree on."""

import json
from collections.abc import Callable
from typing import TypeVar, cast

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar("T")


def connect(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_seconds: float = 60.0,
) -> None:
    """Connects the processes of a run; to be called before JAX touches a device.

    Without addresses JAX finds the others by itself on Cloud TPU, SLURM, Open MPI and Kubernetes.

    Args:
      coordinator_address: "HOST:PORT" of process 0, with a port that is free there.
      num_processes, process_id: of the run, and of this process, from 0.
      heartbeat_seconds: JAX takes a host that is silent for this long for dead, and ends the
        others with a message that names it.
    """
    if coordinator_address is not None and not coordinator_address.rpartition(":")[2].isdecimal():
        raise ValueError(f"coordinator_address must be HOST:PORT, got {coordinator_address!r}")
    # JAX's own handler of SIGTERM would swallow signals that arrive before the loop listens; the
    # loop itself agrees on where to stop, at the end of a dispatch.
    jax.config.update("jax_enable_preemption_service", False)
    addresses = (coordinator_address, num_processes, process_id)
    try:
        jax.distributed.initialize(
            *addresses,
            # With all addresses, SLURM and Open MPI are not asked: they would leave it one GPU.
            cluster_detection_method=None if None in addresses else "deactivate",
            heartbeat_timeout_seconds=round(heartbeat_seconds),
        )
    except ValueError as error:
        needed = "Where JAX finds no cluster, each host needs all three"
        raise ValueError(
            f"coordinator_address, num_processes, process_id = {addresses}: {error} {needed}"
        ) from error


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


def together(function: Callable[[], T]) -> T:
    """Calls `function` on every host and returns each host's own result.

    A ValueError or an OSError on one host is a ValueError on the others, so that none waits for it.
    """
    if jax.process_count() == 1:
        return function()
    try:
        result = function()
    except (ValueError, OSError) as error:
        _texts_of_all(str(error) or repr(error))
        raise
    for host, text in enumerate(_texts_of_all("")):
        if text:
            raise ValueError(f"host {host}: {text}")
    return result


def from_first_host(function: Callable[[], T]) -> T:
    """Calls `function` on host 0 alone; returns its result, which JSON must hold, on all hosts.

    A ValueError or an OSError there is a ValueError on the others.
    """
    result = together(lambda: function() if is_first_host() else None)
    if jax.process_count() == 1:
        return cast(T, result)
    return json.loads(_texts_of_all(json.dumps(result))[0])


def _texts_of_all(text: str) -> list[str]:
    own = np.frombuffer(text.encode(errors="backslashreplace"), np.uint8)
    longest = int(np.max(multihost_utils.process_allgather(np.int32(len(own)))))
    every = multihost_utils.process_allgather(np.pad(own, (0, longest - len(own))))
    return [bytes(row).rstrip(b"\0").decode() for row in np.asarray(every)]


def agree(signum: int, count: int) -> tuple[int, int]:
    """Returns a signal that any host received (0 for none), and the count of host 0."""
    if jax.process_count() == 1:
        return signum, count
    every = np.asarray(multihost_utils.process_allgather(np.asarray([signum, count], np.int32)))
    return int(every[:, 0].max()), int(every[0, 1])
