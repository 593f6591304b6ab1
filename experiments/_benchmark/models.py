"""A training step of every network, at its paper's size."""

import argparse
import time
from functools import partial
from typing import Any

import _cli
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from rich.progress import track

from _benchmark.measure import measure_compiled, normal, provenance, save
from capsjax import models
from capsjax.data.accuracy import top
from capsjax.data.tasks import Example, Objects
from capsjax.training import objective
from capsjax.training.state import DEVICES, init_state, num_parameters, set_training
from capsjax.training.step import update

COLUMNS = {
    "network": "`{name}`",
    "parameters": "{parameters:,}",
    "ms per step": "{milliseconds:.0f}",
    "peak memory": "{megabytes:.0f} MB",
    "of it temporary": "{temporary_megabytes:.0f} MB",
    "compiling": "{compile_seconds:.0f} s",
}


def run(options: argparse.Namespace) -> None:
    """Measures seconds and memory of one training step of each network."""
    names = options.names or models.names()
    for name in names:  # raises at once, not after the first hour
        models.lookup(name)
    records = []
    about = provenance() | {"batch_size": options.batch_size, "repeats": options.repeats}
    for name in track(names, description="networks"):
        records.append(step_of(name, options.batch_size, options.repeats))
        jax.clear_caches()
        save(options.output, {"about": about, "networks": records})
    shown = [record | {"milliseconds": 1e3 * record["seconds"]} for record in records]
    rows = [[cell.format_map(record) for cell in COLUMNS.values()] for record in shown]
    print(f"{about}\n\n{_cli.markdown_table([*COLUMNS], rows)}")


def step_of(name: str, batch_size: int, repeats: int) -> dict[str, Any]:
    """Measures one network: parameters, seconds of a step, memory, time to compile."""
    network = models.lookup(name)
    shape, num_classes = network.input_shape, network.num_classes
    model = models.create(name, shape, num_classes, rngs=nnx.Rngs(0))
    set_training(model)
    optimizer = optax.adam(1e-3)
    graphdef, state = init_state(model, optimizer)
    goal = objective.make_objective(rule=top(1))
    step = partial(update, graphdef=graphdef, objective=goal, optimizer=optimizer)
    # The steps' collectives want a named axis.
    mapped = jax.vmap(step, None, None, axis_name=DEVICES, axis_size=1)
    labels = jax.nn.one_hot(jnp.arange(batch_size) % num_classes, num_classes)
    images = jax.nn.sigmoid(normal(0, batch_size, *shape))
    # One object each, which is the image.
    batch = Example(images, labels, Objects(images[:, None], labels[:, None]))
    keys = jax.random.split(jax.random.key(0), batch_size)
    began = time.perf_counter()
    compiled = jax.jit(mapped).lower(state, batch, keys).compile()
    compile_seconds = time.perf_counter() - began
    measured = measure_compiled(compiled, state, batch, keys, repeats=repeats)
    memory = compiled.memory_analysis()
    return {
        "name": name,
        "parameters": num_parameters(model),
        "seconds": measured.seconds,
        "cpu_seconds": measured.cpu_seconds,
        "temporary_megabytes": measured.megabytes,
        "megabytes": measured.megabytes + memory.argument_size_in_bytes / 1e6,
        "compile_seconds": compile_seconds,
    }
