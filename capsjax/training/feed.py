"""How source images reach the devices: all at once, or in chunks of steps from the host.

Both give the same examples. Which source images a step needs follows from the seed and the step's
number alone; on the host the same functions compute it, with JAX on the CPU, ahead of the step.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from capsjax._extras import extra
from capsjax.data.lazy_images import LazyImages
from capsjax.data.tasks import Task
from capsjax.training.parallel import Devices, divide, of_this_process, replicate
from capsjax.training.step import Batches, DeviceSource, example_keys

# A chunk is put on the devices at once: up to CHUNK_STEPS steps, fewer if their images exceed
# CHUNK_BYTES, but at least one. One chunk is used, one waits, one is being made.
CHUNK_STEPS = 32
CHUNK_BYTES = 64 * 2**20
READERS = 8  # threads

# Takes a step's number; returns its data and the first step that needs other data.
SourceAt = Callable[[int], tuple[DeviceSource, int]]


def is_streamed(task: Task) -> bool:
    """Tells whether the training images stay on the host."""
    return isinstance(task.train.images, LazyImages)


def flat_size(shape: tuple[int, ...]) -> int:
    """Returns how many numbers an image of this shape takes on a device (`DeviceSource`)."""
    pixels = math.prod(shape)
    return pixels + -pixels % 128


@contextmanager
def source_images(
    task: Task, batches: Batches, key: PRNGKeyArray, devices: Devices, first: int, last: int
) -> Iterator[SourceAt]:
    """Yields the source images of the steps `first` … `last` − 1 (`key` as in `step.run_steps`).

    The steps must be asked for in ascending order. Grain reads ahead while the devices compute.
    """
    if not is_streamed(task):
        flat = np.asarray(task.train.images).reshape(len(task.train.labels), -1)
        padded = np.pad(flat, [(0, 0), (0, flat_size(flat.shape[1:]) - flat.shape[1])])
        arrays = replicate((task.train.labels, padded, np.int32(0)), devices)
        yield lambda step: (DeviceSource(*arrays), last)
        return
    with extra("data"):
        import grain

    num_local = len(of_this_process(devices))

    def put(images: list[UInt8[np.ndarray, "local k h w c"]]) -> Array:
        shares = [batch.reshape(num_local, -1, *batch.shape[1:]) for batch in images]
        return divide(np.stack(shares, axis=1), devices)

    labels = replicate(task.train.labels, devices)
    read = _reader(task, batches, key, devices)
    # It depends on neither `first` nor `last`: another size would be another program, and a resumed
    # or longer run would round differently.
    steps = min(CHUNK_STEPS, max(1, CHUNK_BYTES // read(first).nbytes))
    # The last chunk goes beyond `last`.
    dataset = (
        grain.MapDataset.range(first, first + -(-(last - first) // steps) * steps)
        .map(read)
        .to_iter_dataset(grain.ReadOptions(READERS, prefetch_buffer_size=READERS))
        .batch(steps, batch_fn=put)
    )
    chunks = iter(grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=1))
    chunk: Array
    end = first

    def source_at(step: int) -> tuple[DeviceSource, int]:
        nonlocal chunk, end
        while step >= end:
            chunk, end = next(chunks), end + steps
        return DeviceSource(labels, chunk, np.asarray(end - steps, np.int32)), end

    try:
        yield source_at
    finally:
        chunks.close()


def _reader(
    task: Task, batches: Batches, key: PRNGKeyArray, devices: Devices
) -> Callable[[int], UInt8[np.ndarray, "local k h w c"]]:
    """Returns a function from a step to the source images that this process's devices need."""
    # Committed to the CPU, so that everything computed from them runs there too.
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ValueError("a set fed from the host needs JAX_PLATFORMS to name cpu too") from error
    key, labels = jax.device_put((key, task.train.labels), cpu)
    order_key, example_key = jax.random.split(key)
    slots = _slots(batches, devices)
    make_order = jax.jit(batches.order)

    @lru_cache(maxsize=2)  # the readers are ahead of the end of an epoch
    def order(epoch: int) -> Int[np.ndarray, "examples"]:
        return np.asarray(make_order(order_key, epoch))

    @jax.jit
    def choose(step: Int[Array, ""], indices: Int[Array, "local"]) -> Int[Array, "local k"]:
        for_data, _ = example_keys(example_key, step, jnp.asarray(slots))
        return jax.vmap(task.recipe.choose, in_axes=(0, None, 0))(for_data, labels, indices)

    def read(step: int) -> UInt8[np.ndarray, "local k h w c"]:
        indices = order(step // batches.per_epoch)[batches.places(step, slots)]
        return task.train.images[np.asarray(choose(step, indices))]

    return read


def _slots(batches: Batches, devices: Devices) -> Int[np.ndarray, "local"]:
    """Lists the places of this process's devices in the global batch."""
    return np.concatenate([batches.slots_of(number) for number in of_this_process(devices)])
