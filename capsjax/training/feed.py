"""How source images come to the devices: all at once, or step by step from the host.

Both give the same examples. Which source images a step needs follows from the seed and the step's
number alone; on the host the same functions find it out, with JAX on the CPU, ahead of the step.
So a stream can begin at any step, and there is no position in it to save.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from capsjax.data.stored import Stored
from capsjax.data.tasks import Arrays, EvaluationSet, Present, Task
from capsjax.training.parallel import Devices, divide, of_this_process, replicate
from capsjax.training.step import Batches, Fed, example_keys

# A chunk is what is put on a device at once: so many steps, or fewer if their images take more
# than so many bytes, but at least one. One is used, one waits on the device, one is being made.
CHUNK_STEPS = 32
CHUNK_BYTES = 64 * 2**20
READERS = 8  # threads

# From a step's number: the indices of its examples, and the places of each one's source images.
Plan = Callable[[int], tuple[Int[np.ndarray, "local"], Int[np.ndarray, "local k"]]]
# From a step's number: what it is fed, and the first step that needs another.
At = Callable[[int], tuple[Fed | None, int]]


def for_training(
    task: Task, batches: Batches, key: PRNGKeyArray, devices: Devices
) -> "Resident | Streamed":
    """The source images of the training steps that `key` leads to (`step.run_steps`)."""
    if not isinstance(task.train.images, Stored):
        return Resident(task.train, devices)
    key, labels = _on_host((key, task.train.labels))
    order_key, example_key = jax.random.split(key)
    slots = _slots(batches, devices)
    make_order = jax.jit(batches.order)

    @lru_cache(maxsize=2)  # the readers are ahead of the end of an epoch
    def order(epoch: int) -> Int[np.ndarray, "examples"]:
        return np.asarray(make_order(order_key, epoch))

    @jax.jit
    def sources(step, indices):
        for_data, _ = example_keys(example_key, step, jnp.asarray(slots))
        return jax.vmap(task.recipe.sources, in_axes=(0, None, 0))(for_data, labels, indices)

    def plan(step: int):
        indices = order(step // batches.per_epoch)[batches.places(step, slots)]
        return indices, np.asarray(sources(step, indices))

    return Streamed(task.train, plan, devices)


def for_evaluation(
    examples: EvaluationSet, batches: Batches, devices: Devices
) -> "Resident | Streamed":
    """The source images of all examples in order, step after step (`step.evaluate_batch`)."""
    if not isinstance(examples.arrays.images, Stored):
        return Resident(examples.arrays, devices)
    labels = _on_host(examples.arrays.labels)
    slots = _slots(batches, devices)

    @jax.jit
    def planned(number):
        indices = batches.in_order(number, jnp.asarray(slots))
        return indices, jax.vmap(examples.sources, in_axes=(None, 0))(labels, indices)

    return Streamed(
        examples.arrays, lambda number: jax.tree.map(np.asarray, planned(number)), devices
    )


class Resident:
    """All source images lie on every device.

    Attributes:
      arrays: an argument of each call of the program.
    """

    def __init__(self, arrays: Arrays, devices: Devices) -> None:
        self.arrays: Arrays = replicate(arrays, devices)

    @contextmanager
    def running(self, first: int, last: int) -> Iterator[At]:
        """Nothing is fed in any step."""
        yield lambda step: (None, last)


class Streamed:
    """Grain reads each step's images, this process's share alone, while devices compute.

    Attributes:
      arrays: an argument of each call of the program: labels, and no images.
    """

    def __init__(self, arrays: Arrays, plan: Plan, devices: Devices) -> None:
        assert isinstance(arrays.images, Stored)
        self.arrays: Arrays = replicate(Arrays(None, arrays.labels), devices)
        self._images, self._plan, self._devices = arrays.images, plan, devices

    @contextmanager
    def running(self, first: int, last: int) -> Iterator[At]:
        """Reads steps `first` … `last` − 1 ahead; they must be asked for in ascending order.

        The size of a chunk does not depend on `first`: another size would be another program, and
        a resumed run another rounding.
        """
        num_local = len(of_this_process(self._devices))

        def read(step: int) -> Fed:
            """With the devices as the first axis."""
            indices, places = self._plan(step)
            fed = Fed(np.full(len(indices), step), indices, Present(places, self._images[places]))
            return jax.tree.map(lambda x: x.reshape(num_local, -1, *x.shape[1:]), fed)

        def put(steps: list[Fed]) -> Fed:
            chunk = jax.tree.map(lambda *xs: np.stack(xs, axis=1), *steps)
            return divide(chunk._replace(first=chunk.first[:, 0, 0]), self._devices)

        import grain

        with _of_this_host():
            size = sum(x.nbytes for x in jax.tree.leaves(read(first)))
        num_chunks = -(-last // min(CHUNK_STEPS, max(1, CHUNK_BYTES // size)))
        steps = -(-last // num_chunks)
        # The last chunk goes beyond `last`.
        stop = first + -(-(last - first) // steps) * steps
        dataset = (
            grain.MapDataset.range(first, stop)
            .map(read)
            .to_iter_dataset(grain.ReadOptions(READERS, prefetch_buffer_size=READERS))
            .batch(steps, batch_fn=put)
        )
        chunks = iter(grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=1))
        chunk, end = None, first

        def at(step: int) -> tuple[Fed | None, int]:
            nonlocal chunk, end
            while step >= end:
                with _of_this_host():
                    chunk, end = next(chunks), end + steps
            return chunk, end

        try:
            yield at
        finally:
            chunks.close()


@contextmanager
def _of_this_host() -> Iterator[None]:
    """A damaged file may be damaged here alone; ValueErrors are what all hosts come to."""
    try:
        yield
    except ValueError as error:
        raise OSError(str(error)) from error


def _slots(batches: Batches, devices: Devices) -> Int[np.ndarray, "local"]:
    """Of this process's devices, one after the other."""
    return np.concatenate([batches.slots_of(number) for number in of_this_process(devices)])


def _on_host(tree: Any) -> Any:
    """Committed to the CPU: what is computed from it is computed there, beside other devices."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ValueError(
            "feeding images from the host takes JAX's CPU backend beside that of the devices: set "
            "JAX_PLATFORMS=cuda,cpu (or tpu,cpu), or raise device_budget_mb so that nothing is fed"
        ) from error
    return jax.device_put(tree, cpu)
