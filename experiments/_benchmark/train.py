"""Training steps of three papers' networks: rates, and where the time goes.

Each network and number of devices is measured in a process of its own.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import _markdown
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from _compile.hlo import Module
from _configs import load
from etils import epath
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from rich.console import Console
from rich.markup import escape

from _benchmark.measure import machine_rates, provenance, seconds_of
from _benchmark.operations import operations
from capsjax._files import write_atomically
from capsjax._names import nearest
from capsjax.data.dataset import Dataset
from capsjax.data.tasks import Task
from capsjax.data.tasks.classification import Classification
from capsjax.evaluation.batches import check_batch_size
from capsjax.runs.about import About
from capsjax.runs.circumstances import current
from capsjax.runs.display import Writer
from capsjax.runs.history import History
from capsjax.runs.saving import Checkpoints
from capsjax.training.build import Training, build
from capsjax.training.parallel import on_devices, replicate
from capsjax.training.state import DEVICES
from capsjax.training.step import DeviceSource, drawing

MNIST, CIFAR = (60_000, 28, 28, 1), (50_000, 32, 32, 3)
# In training a dispatch takes about this long: `capsjax.runs.loop.DISPATCH_SECONDS`.
DISPATCH_SECONDS = 2.0
COUNTED_DEVICES = 8


# The papers' recipes (configs/), and the shape of their training images.
NETWORKS: dict[str, tuple[str, tuple[int, ...]]] = {
    "sabour2017_mnist": ("sabour2017_mnist", MNIST),
    "choi2019_mnist": ("choi2019:mnist_plus", MNIST),
    "tsai2020_cifar10_resnet": ("tsai2020_cifar:tsai2020_cifar10_resnet", CIFAR),
}


def run(options: argparse.Namespace) -> None:
    """Measures every network on every number of devices."""
    names = options.names or list(NETWORKS)
    if options.here:
        (name,), (num_devices,) = names, options.devices
        batch_size = _batch_size(name, options)
        if options.here == "count":
            record = count(name, num_devices)
        else:
            record = measure(name, batch_size, num_devices, options.repeats)
        write_atomically(options.output, json.dumps(record))
        return
    for name in names:
        if name not in NETWORKS:
            raise ValueError(f"unknown network {name!r}: {nearest(name, NETWORKS)}")
        for num_devices in options.devices:
            if num_devices < 1:
                raise ValueError(f"--devices must be at least 1, got {num_devices}")
            check_batch_size(_batch_size(name, options), num_devices)
    about = provenance() | {"repeats": options.repeats}
    about["product_rate"], about["copy_rate"] = machine_rates(options.repeats)
    records, counts = [], []
    console = Console(soft_wrap=True)  # Markdown is not wrapped
    console.print(escape(f"{about}\n"))
    for name in names:
        counts.append(_in_a_process("count", name, COUNTED_DEVICES, options))
        for num_devices in options.devices:
            records.append(_in_a_process("measure", name, num_devices, options))
            if options.output:
                everything = {"about": about, "training": records, "counts": counts}
                write_atomically(options.output, json.dumps(everything, indent=2))
    _print(console, records, counts, about["product_rate"])


def _batch_size(name: str, options: argparse.Namespace) -> int:
    return options.batch_size or load(NETWORKS[name][0]).training.batch_size


def _in_a_process(
    what: str, name: str, num_devices: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Measures in a process of its own: JAX fixes devices at its start, and memory is its peak."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "record.json"
        subprocess.run(
            [
                *(sys.executable, sys.argv[0], "train", f"--here={what}", f"--names={name}"),
                *(f"--devices={num_devices}", f"--batch_size={_batch_size(name, options)}"),
                *(f"--repeats={options.repeats}", f"--output={output}"),
            ],
            env={k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
            | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}"},
            check=True,
        )
        return json.loads(output.read_text())


def random_task(config: ml_collections.ConfigDict, shape: tuple[int, ...]) -> Task:
    """Returns a task of noise images: times do not depend on what the images show."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, shape, np.uint8)
    labels = random.integers(0, 10, len(images)).astype(np.int32)
    names = tuple("0123456789")
    options = {name: value for name, value in config.data.items() if name != "name"}
    family = replace(Classification(), **options | {"validation_fraction": 0.0})
    return family.build(
        config.data.name, lambda name, split: Dataset(images, labels, names, name, split)
    )


def setup_of(name: str, batch_size: int, devices: list[jax.Device]) -> Training:
    recipe, shape = NETWORKS[name]
    config = load(recipe)
    config.training.batch_size = batch_size
    return build(config, random_task(config, shape), devices)


def measure(name: str, batch_size: int, num_devices: int, repeats: int) -> dict[str, Any]:
    """Measures the seconds of a step as the loop runs it, and of what is not the network's."""
    devices = jax.devices()[:num_devices]
    setup = setup_of(name, batch_size, devices)
    source = DeviceSource.whole(setup.task.train)
    source, key = replicate((source, jax.random.key(0)), devices)
    state = replicate(setup.init_state(0), devices)
    history = History()
    with tempfile.TemporaryDirectory() as directory:
        workdir = epath.Path(directory)
        with Checkpoints(workdir / "run", keep=1) as saver, Writer(workdir, history) as writer:
            dispatch = setup.dispatch()

            def steps(count: int) -> tuple[Any, float]:
                nonlocal state
                began = time.perf_counter()
                state, record = jax.block_until_ready(dispatch(state, source, key, np.int32(count)))
                return record, time.perf_counter() - began

            _, compile_seconds = steps(0)
            steps(1)
            # One step decides how many make a dispatch.
            count = max(1, min(256, round(DISPATCH_SECONDS / steps(1)[1])))
            step, times, host_times = 2, [], []
            for _ in range(repeats):
                record, seconds = steps(count)
                # Notes what the loop does between dispatches.
                began = time.perf_counter()
                record = {name: np.asarray(values)[:count] for name, values in record.items()}
                history.add_steps(step, record, every=20, epoch=1)
                writer.add_speed(step + count, count * batch_size / seconds)
                writer.flush()
                host_times.append((time.perf_counter() - began) / count)
                times.append(seconds / count + host_times[-1])
                step += count
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            began = time.perf_counter()
            saver.save(state, About(setup.config, history, current(setup.devices)))
            save_seconds = time.perf_counter() - began
            saver.wait()
    return {
        "name": name,
        "devices": num_devices,
        "batch_size": batch_size,
        "steps_per_dispatch": count,
        "parameters": setup.num_parameters,
        "seconds": statistics.median(times) + save_seconds / setup.batches.per_epoch,
        "input_seconds": _input_seconds(setup, devices, count, repeats),
        "host_seconds": statistics.median(host_times),
        "save_seconds": save_seconds,
        "compile_seconds": compile_seconds,
        "peak_gib": peak,
    }


def _input_seconds(setup: Training, devices: list[jax.Device], count: int, repeats: int) -> float:
    """Times the making of a step's examples, the order of the epoch included."""

    def steps(source, key, count):
        draw = drawing(jnp.int32(0), source, key, task=setup.task, batches=setup.batches)

        def body(step, total):
            made = jax.tree.map(_as_number, draw(step))
            return total + sum(jax.tree.leaves(made))

        return lax.pmean(lax.fori_loop(0, count, body, jnp.float32(0)), DEVICES)

    run = on_devices(steps, devices, (None, None, None))
    source = DeviceSource.whole(setup.task.train)
    arguments = replicate((source, jax.random.key(0)), devices)
    return seconds_of(lambda: run(*arguments, np.int32(count)), repeats) / count


def _as_number(x: jax.Array) -> jax.Array:
    """Sums everything, so that all of it is computed."""
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return jnp.sum(x.astype(jnp.float32))


def count(name: str, num_devices: int) -> dict[str, Any]:
    """Counts the operations of a step of the paper's batch, and what its devices exchange."""
    config = load(NETWORKS[name][0])
    batch_size, devices = config.training.batch_size, jax.devices()[:num_devices]
    setup = setup_of(name, batch_size, devices)
    whole = _mapped(setup, devices[:1])
    arguments = _arguments(setup, batch_size)
    done = operations(jax.make_jaxpr(whole)(*arguments).jaxpr)
    # The bytes do not depend on the batch: one example on each device is soonest compiled.
    few = _arguments(setup, num_devices)
    compiled = jax.jit(_mapped(setup, devices)).lower(*few).compile()
    return {
        "name": name,
        "batch_size": batch_size,
        "parameters": setup.num_parameters,
        "product_operations": done.products,
        "other_operations": done.others,
        "bytes": done.bytes,
        "devices": num_devices,
        "collectives": {
            kind: collective._asdict()
            for kind, collective in Module(compiled.as_text()).collectives.items()
        },
    }


def _mapped(setup: Training, devices: list[jax.Device]) -> Callable[..., Any]:
    mesh = Mesh(np.asarray(devices), (DEVICES,))
    same, divided = PartitionSpec(), PartitionSpec(DEVICES)
    return jax.shard_map(
        setup.update, mesh=mesh, in_specs=(same, divided, divided), out_specs=same, check_vma=False
    )


def _arguments(setup: Training, batch_size: int) -> tuple[Any, ...]:
    sample = partial(setup.task.sample, count=batch_size)
    batch = jax.eval_shape(sample, jax.random.key(0), *map(jnp.asarray, setup.task.train))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch_size))
    return jax.eval_shape(lambda: setup.init_state(0)), batch, keys


def _print(
    console: Console,
    records: list[dict[str, Any]],
    counts: list[dict[str, Any]],
    product_rate: float,
) -> None:
    """Prints Markdown, for docs/benchmarks.md."""
    operations_per_image = {
        c["name"]: (c["product_operations"] + c["other_operations"]) / c["batch_size"]
        for c in counts
    }
    heads = (
        *("network", "devices", "batch", "step, ms", "images/s", "GFLOP/s", "of products"),
        *("input + host", "save", "compiling", "memory"),
    )
    rows = []
    for r in records:
        rate = r["batch_size"] / r["seconds"]
        done = rate * operations_per_image[r["name"]]
        beside = (r["input_seconds"] + r["host_seconds"]) / r["seconds"]
        rows.append(
            [
                f"`{r['name']}`",
                *(str(r["devices"]), str(r["batch_size"])),
                *(f"{1e3 * r['seconds']:.1f}", f"{rate:.0f}"),
                *(f"{done / 1e9:.1f}", f"{done / product_rate:.0%}", f"{beside:.2%}"),
                *(f"{r['save_seconds']:.2f} s", f"{r['compile_seconds']:.0f} s"),
                f"{r['peak_gib']:.1f} GiB",
            ]
        )
    console.print("\n".join(_markdown.table(heads, rows)), "\n")
    heads = (
        *("network", "operations per image, 10⁶", "of them products", "parameters × 4"),
        *("collective bytes per step", "ratio"),
    )
    rows = []
    for c in counts:
        ideal, collectives = 4 * c["parameters"], c["collectives"]
        kinds = (f"{f['bytes']:,} in {f['number']} {kind}" for kind, f in collectives.items())
        share = c["product_operations"] / (c["product_operations"] + c["other_operations"])
        rows.append(
            [
                *(f"`{c['name']}`", f"{operations_per_image[c['name']] / 1e6:,.0f}"),
                *(f"{share:.0%}", f"{ideal:,}", ", ".join(kinds)),
                f"{sum(f['bytes'] for f in collectives.values()) / ideal:.4f}",
            ]
        )
    console.print("\n".join(_markdown.table(heads, rows)))
