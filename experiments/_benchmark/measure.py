"""Times and memory of compiled functions, and what a number needs beside it."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from _provenance import commit


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


def seconds_of(call: Callable[[], Any], repeats: int) -> float:
    """Returns the median of calls, after one call that compiles."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure_compiled(compiled: jax.stages.Compiled, *arguments: Any, repeats: int) -> Measured:
    """Measures a compiled program as `measure` does, after one call that does not count."""
    result = jax.block_until_ready(compiled(*arguments))
    seconds, cpu_seconds = [], []
    for _ in range(repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    memory = compiled.memory_analysis().temp_size_in_bytes / 1e6
    return Measured(statistics.median(seconds), statistics.median(cpu_seconds), memory, result)


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


def machine_rates(repeats: int) -> tuple[float, float]:
    """Returns the rates of matrix products (FLOP/s) and of copies (bytes read and written/s)."""
    n = 2048
    matrix = normal(0, n, n)
    product = measure(lambda x: x @ x, matrix, repeats=repeats).seconds
    long = jnp.zeros(64 * 2**20)
    copy = measure(lambda x: x + 1, long, repeats=repeats).seconds
    return 2 * n**3 / product, 2 * long.nbytes / copy


def provenance() -> dict[str, Any]:
    """Returns what stands beside a number: commit, versions and machine."""
    return {
        "commit": commit(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }
