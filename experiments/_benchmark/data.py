"""How fast training examples are made on the device, beside a step of CapsNet."""

import argparse
import json
from functools import partial
from typing import Any

import _markdown
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.markup import escape

from _benchmark.measure import measure, provenance, seconds_of
from capsjax._files import write_atomically
from capsjax.data import tasks
from capsjax.data.tasks import EvaluationSet, Task
from capsjax.training import config as configs
from capsjax.training.build import build
from capsjax.training.parallel import on_devices, replicate
from capsjax.training.step import DeviceSource


def run(options: argparse.Namespace) -> None:
    """Seconds of a batch of each task, made by a compiled program."""
    about = provenance() | {"batch_size": options.batch_size, "repeats": options.repeats}
    records: list[dict[str, Any]] = []
    steps: dict[Any, float] = {}
    for name in ("mnist", *tasks.generated()):
        task = tasks.create(name, data_dir=options.data_dir)
        # Tasks with images of one size, and as many objects in them, have the same step.
        kind = task.input_shape, task.multi_label
        if options.step and kind not in steps:
            steps[kind] = step_seconds(task, options.batch_size, options.repeats)
        sets: dict[str, EvaluationSet | None] = {name: None}
        if name == "affnist_generated":
            # Its training images are translated only: the affine sampler is the test set's.
            sets[f"{name}, test images"] = task.evaluation_set("test")
        for what, examples in sets.items():
            seconds = batch_seconds(task, examples, options.batch_size, options.repeats)
            records.append({"task": what, "seconds": seconds, "step_seconds": steps.get(kind)})
    if options.output:
        text = json.dumps({"about": about, "tasks": records}, indent=2)
        write_atomically(options.output, text)
    console = Console(soft_wrap=True)
    console.print(escape(f"{about}\n"))
    heads = ("task", "ms per batch", "images/s", "CapsNet's step, ms", "share of it")
    rows = []
    for record in records:
        seconds, step = record["seconds"], record["step_seconds"]
        beside = (f"{1e3 * step:,.0f}", f"{seconds / step:.2%}") if step else ("–", "–")
        speed = f"{options.batch_size / seconds:,.0f}"
        rows.append((record["task"], f"{1e3 * seconds:.2f}", speed, *beside))
    console.print("\n".join(_markdown.table(heads, rows)))


def batch_seconds(
    task: Task, examples: EvaluationSet | None, batch_size: int, repeats: int
) -> float:
    """Seconds of a batch of the task's training examples, or of an evaluation set of it."""
    if examples is None:
        make = partial(task.sample, count=batch_size)
        arguments = (jax.random.key(0), *jax.device_put(task.train))
        return measure(make, *arguments, repeats=repeats).seconds

    def example(number: jax.Array, images: jax.Array, labels: jax.Array) -> Any:
        chosen = examples.numbered.choose(labels, number)
        return examples.numbered.make(number, images[chosen], labels[chosen])

    batch = jax.vmap(example, in_axes=(0, None, None))
    source = jax.device_put(examples.source)
    return measure(batch, jnp.arange(batch_size), *source, repeats=repeats).seconds


def step_seconds(task: Task, batch_size: int, repeats: int) -> float:
    """Seconds of a training step of the paper's CapsNet on one device, drawing included."""
    devices = jax.devices()[:1]
    config = configs.default("sabour2017_capsnet", "mnist")
    config.training.batch_size = batch_size
    setup = build(config, task, devices)
    run = on_devices(setup.run_steps, devices, (None, None, None, None))
    source = DeviceSource.whole(task.train)
    arguments = replicate((setup.init_state(0), source, jax.random.key(0)), devices)
    return seconds_of(lambda: run(*arguments, np.int32(1)), repeats)
