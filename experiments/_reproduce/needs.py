"""What runs need before they start: data, memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import ml_collections

from capsjax.data import load, tasks, tfds
from capsjax.training.parallel import memory_needed, on_devices
from capsjax.training.setup import build


def missing(source: str, data_dir: str | None) -> str | None:
    """Why the data set `source` cannot be read, and how to get it; None where it can.

    What TFDS can download and prepare, because TensorFlow is installed, is downloaded.
    """
    if ":" not in source and found(source, data_dir):
        return None
    try:
        load(source, "train", data_dir)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def found(source: str, data_dir: str | None) -> bool:
    """Whether `source` is on this machine."""
    if source == "digits" or ":" in source:  # a file's name: `missing` reads it
        return True
    return tfds.find(source, tfds.search_path(data_dir)) is not None


class Memory(NamedTuple):
    """Of one training, in bytes of 2**30.

    Attributes:
      needed: of a training step as the compiler plans it, state, images and a copy for checkpoints.
      free: None where the system does not tell.
    """

    needed: float
    free: float | None


def memory(config: ml_collections.ConfigDict, data_dir: str | None) -> Memory:
    """The memory that training on `config` takes on a device, nothing being trained."""
    task = tasks.create(**config.data, data_dir=data_dir)
    devices = jax.devices()
    training = build(config, task, devices)
    state = jax.eval_shape(lambda: training.init_state(config.seed))
    local = max(1, config.training.batch_size // len(devices))
    key = jax.eval_shape(lambda: jax.random.key(0))
    source = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), task.train)
    batch = jax.eval_shape(lambda key, source: task.sample(key, *source, local), key, source)
    keys = jax.eval_shape(lambda key: jax.random.split(key, local), key)
    program = on_devices(training.update, devices[:1], (None, None, None))
    copies = _bytes(state) + task.train.images.nbytes
    needed = memory_needed(program, state, batch, keys) + copies
    return Memory(needed / 2**30, free_memory(devices[0]))


def free_memory(device: jax.Device) -> float | None:
    """Of a device, or of this machine where it computes itself, in 2**30 bytes."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return (stats["bytes_limit"] - stats.get("bytes_in_use", 0)) / 2**30
    limits = []
    info = Path("/proc/meminfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) / 2**20)
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").exists():
        most = (group / "memory.max").read_text().strip()
        if most != "max":
            used = int((group / "memory.current").read_text())
            limits.append((int(most) - used) / 2**30)
    return min(limits, default=None)


def too_large(estimates: Iterable[tuple[str, Memory]]) -> list[str]:
    """A line for each that does not fit."""
    return [
        f"{what}: about {memory.needed:.1f} GiB, {memory.free:.1f} are free"
        for what, memory in estimates
        if memory.free is not None and memory.needed > memory.free
    ]


def _bytes(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
