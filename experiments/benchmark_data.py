"""How fast training examples are made, beside a step of CapsNet and beside the host's way.

  python experiments/benchmark_data.py
  python experiments/benchmark_data.py --step   # also times CapsNet's step: minutes on a CPU

Prints a Markdown table: for each task the time of a batch made on the device by a compiled program,
and of the same batch made on one host core, image by image, with SciPy and NumPy.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import _cli
from _provenance import commit

if TYPE_CHECKING:
    from capsjax.data.tasks import EvaluationSet, Task

REPETITIONS = 20


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = _cli.parser(__doc__)
    parser.add_argument("--batch_size", type=int, default=128, help="default: 128")
    parser.add_argument("--step", action="store_true", help="time CapsNet's step too")
    _cli.add_data_dir(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    """Measures and prints."""
    if args.batch_size < 1:
        raise ValueError(f"--batch_size must be at least 1, got {args.batch_size}")
    import jax

    from capsjax.data import tasks

    device = jax.devices()[0]
    print(
        f"Batch {args.batch_size}; commit {commit()}; jax {jax.__version__} on "
        f"{device.device_kind}, {os.cpu_count()} host cores; fastest of {REPETITIONS} (host: of "
        "3), milliseconds.\n"
    )
    print("| task | sampler | images/s | host | host / sampler | CapsNet's step | share |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    steps: dict[Any, float] = {}
    for name in ("mnist", *tasks.generated()):
        task = tasks.create(name, data_dir=args.data_dir)
        # Tasks with images of one size, and as many objects in them, have the same step.
        kind = task.input_shape, task.multi_label
        if args.step and kind not in steps:
            steps[kind] = step_time(task, args.batch_size)
        row(name, task, args.batch_size, steps.get(kind))
        if name == "affnist_generated":
            # Its training images are translated only: the affine sampler is the test set's.
            test = task.evaluation_set("test")
            row(f"{name}, test images", task, args.batch_size, steps.get(kind), test)


def row(
    name: str,
    task: "Task",
    batch_size: int,
    step: float | None,
    examples: "EvaluationSet | None" = None,
) -> None:
    """Measures and prints one line of the table."""
    sampler = best(on_device(task, batch_size, examples), REPETITIONS)
    host = best(on_host(task, batch_size, examples), 3)
    cells = [
        name,
        f"{1e3 * sampler:.2f}",
        f"{batch_size / sampler:,.0f}",
        f"{1e3 * host:.1f}",
        f"{host / sampler:.0f}×",
    ]
    cells += [f"{1e3 * step:,.0f}", f"{100 * sampler / step:.2f} %"] if step else ["–", "–"]
    print("| " + " | ".join(cells) + " |", flush=True)


def best(function: Callable[[], Any], repetitions: int) -> float:
    """Seconds of the fastest call, after one that compiles."""
    import jax

    jax.block_until_ready(function())
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def on_device(task: "Task", batch_size: int, examples: "EvaluationSet | None") -> Callable[[], Any]:
    """Makes one batch of the task, or of an evaluation set of it."""
    import jax
    import jax.numpy as jnp

    if examples is None:
        sample = jax.jit(task.sample, static_argnums=3)
        return partial(sample, jax.random.key(0), *jax.device_put(task.train), batch_size)
    images, labels = jax.device_put(examples.source)

    @jax.jit
    @jax.vmap
    def make(number):
        chosen = examples.numbered.choose(labels, number)
        return examples.numbered.make(number, images[chosen], labels[chosen])

    return partial(make, jnp.arange(batch_size))


def on_host(task: "Task", batch_size: int, examples: "EvaluationSet | None") -> Callable[[], Any]:
    """Makes a batch with the same parameters by loops over NumPy and SciPy calls.

    Drawing the parameters is not counted.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy import ndimage

    source = task.train if examples is None else examples.source
    recipe = task.recipe if examples is None else examples.recipe
    keys = jax.random.split(jax.random.key(0), batch_size)
    places = jnp.arange(batch_size)
    choose = jax.jit(jax.vmap(recipe.choose, in_axes=(0, None, 0)))
    chosen = np.asarray(choose(keys, source.labels, places))
    draw = jax.jit(jax.vmap(recipe.draw))
    drawn = jax.tree.map(np.asarray, draw(keys, places, source.images[chosen]))
    rows, columns, _ = recipe.image_shape(source.images.shape[1:])

    def padded(place: int) -> np.ndarray:
        image = np.asarray(source.images[place, ..., 0], np.float32) / 255
        top, left = (rows - image.shape[0]) // 2, (columns - image.shape[1]) // 2
        canvas = np.zeros((rows, columns), np.float32)
        canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
        return canvas

    def moved(place: int, offset: np.ndarray) -> np.ndarray:
        return ndimage.shift(padded(place), offset, order=0)

    def transformed(i: int) -> np.ndarray:
        angle, shear = np.deg2rad(drawn.affine.rotation[i]), drawn.affine.shear[i]
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = rotation @ np.array([[1, 0], [shear, 1]]) @ np.diag(drawn.affine.scale[i])
        inverse = np.linalg.inv(matrix)
        centre = np.array([(rows - 1) / 2, (columns - 1) / 2])
        offset = centre - inverse @ (centre + drawn.affine.translation[i])
        canvas = padded(chosen[i, 0])
        return ndimage.affine_transform(canvas, inverse, offset, order=1, mode="grid-constant")

    def batch() -> np.ndarray:
        if hasattr(drawn, "affine"):
            return np.stack([transformed(i) for i in range(batch_size)])
        if hasattr(drawn, "present"):
            pairs = zip(chosen, drawn.offsets, drawn.present, strict=True)
            return np.stack(
                [np.minimum(moved(s[0], o[0]) + moved(s[1], o[1]) * p[1], 1) for s, o, p in pairs]
            )
        return np.stack([moved(s, o) for s, o in zip(chosen[:, 0], drawn.offset, strict=True)])

    return batch


def step_time(task: "Task", batch_size: int) -> float:
    """Seconds of a training step of the paper's CapsNet on one device, drawing included."""
    import jax
    import numpy as np

    from capsjax.training import config as configs
    from capsjax.training.build import build
    from capsjax.training.parallel import on_devices, replicate
    from capsjax.training.step import DeviceSource

    devices = jax.devices()[:1]
    config = configs.default("sabour2017_capsnet", "mnist")
    config.training.batch_size = batch_size
    setup = build(config, task, devices)
    run = on_devices(setup.run_steps, devices, (None, None, None, None))
    source = DeviceSource.whole(task.train)
    arguments = replicate((setup.init_state(0), source, jax.random.key(0)), devices)
    return best(lambda: run(*arguments, np.int32(1)), 3)


if __name__ == "__main__":
    _cli.run(parser(), main)
