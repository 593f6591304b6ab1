"""Times and memory of compiled functions, and what a number needs beside it."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from _provenance import commit

from capsjax._files import write_atomically
from capsjax.runs.about import cores


def normal(seed: int, *shape: int) -> jax.Array:
    """Returns standard normal numbers."""
    return jax.random.normal(jax.random.key(seed), shape)


class Measured(NamedTuple):
    seconds: float
    cpu_seconds: float  # of all threads: does not grow when other programs take the cores
    megabytes: float
    result: Any


def measure(f: Callable[..., Any], *arguments: Any, repeats: int) -> Measured:
    """Medians over calls, and the temporary memory of the compiled program."""
    return measure_compiled(jax.jit(f).lower(*arguments).compile(), *arguments, repeats=repeats)


def measure_compiled(compiled: jax.stages.Compiled, *arguments: Any, repeats: int) -> Measured:
    """Measures a compiled program as `measure` does, after one call that does not count."""
    result = jax.block_until_ready(compiled(*arguments))
    times = [timed(lambda: compiled(*arguments)) for _ in range(repeats)]
    seconds, cpu_seconds = (statistics.median(every) for every in zip(*times, strict=True))
    return Measured(
        seconds, cpu_seconds, compiled.memory_analysis().temp_size_in_bytes / 1e6, result
    )


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Returns the seconds of a call, and those of all threads."""
    began, cpu_began = time.perf_counter(), time.process_time()
    jax.block_until_ready(call())
    return time.perf_counter() - began, time.process_time() - cpu_began


def save(file: Path | None, report: dict[str, Any]) -> None:
    """Writes what was measured, if a file was named."""
    if file:
        write_atomically(file, json.dumps(report, indent=2))


def with_gradient(f: Callable[..., jax.Array], num_arguments: int) -> Callable[..., Any]:
    """Returns the gradient of a loss that weighs every output differently, by all arguments."""

    def loss(*arguments: jax.Array) -> jax.Array:
        out = f(*arguments)
        return jnp.sum(jnp.sin(jnp.arange(out.size)).reshape(out.shape) * out)

    return jax.grad(loss, argnums=tuple(range(num_arguments)))


def relative_difference(ours: Any, theirs: Any) -> float:
    """Returns two trees' largest difference over each array's largest number; NaN if one has."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    away = [jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)) for x, y in pairs]
    return float(jnp.max(jnp.stack(away)))


def provenance() -> dict[str, Any]:
    """Returns what stands beside a number: commit, versions and machine."""
    return {
        "commit": commit(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "cores": cores(),
        "load": os.getloadavg()[0],
    }
