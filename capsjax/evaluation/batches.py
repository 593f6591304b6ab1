"""A function of a network and of examples, one batch at a time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Num, PyTree

from capsjax.models import Output
from capsjax.training.parallel import check_batch_size, of_this_process

_AXIS = "devices"


def in_batches(
    function: Callable[..., PyTree],
    model: nnx.Module,
    arrays: Sequence[Any],
    *shared: PyTree,
    batch_size: int = 128,
    devices: Sequence[jax.Device] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> PyTree:
    """Calls `function(model, *batch, *shared)` batch by batch; joins the results on the host.

    It is compiled once for all batches and for all networks of the same structure: the last batch
    is padded with its last example, and the padding's results are dropped. The network is in
    evaluation mode and is not changed.

    Args:
      function: from a batch of `arrays` to arrays with the batch's leading axis; hashable, and
        equal to any other that does the same (a module's function is, a lambda is not).
      model: a network; with several hosts, the same on each.
      arrays: one or more with the same leading axis, or anything else that has a length and can
        be indexed by NumPy integers.
      *shared: further arguments, the same for all batches: arrays.
      batch_size: examples at a time, on all devices together.
      devices: each batch is divided over them; they may belong to several hosts, which must then
        all make this call. Default: JAX's default device.
      progress: called with the number of examples done.

    Raises:
      ValueError: no examples, arrays of different lengths, or a batch size that is not a positive
        multiple of the number of devices.
    """
    sizes = {len(array) for array in arrays}
    if len(sizes) != 1 or 0 in sizes:
        lengths = ", ".join(str(len(array)) for array in arrays)
        raise ValueError(f"expected arrays of one length, at least 1; got lengths {lengths}")
    num_devices = max(1, len(devices))
    check_batch_size(batch_size, num_devices)
    (num,) = sizes
    batch_size = _no_larger_than_needed(batch_size, num, num_devices)
    mesh = Mesh(np.asarray(devices), (_AXIS,)) if num_devices > 1 else None
    graphdef, state = nnx.split(model)
    if mesh is not None:
        put = partial(jax.make_array_from_process_local_data, NamedSharding(mesh, PartitionSpec()))
        state = jax.tree.map(lambda x: put(np.asarray(x)), state)
    elif devices:
        state = jax.device_put(state, devices[0])
    parts: list[PyTree] = []
    for start in range(0, num, batch_size):
        places = np.minimum(np.arange(start, start + batch_size), num - 1)
        batch = [_put(array, places, mesh) for array in arrays]
        parts.append(_apply(function, mesh, graphdef, state, batch, shared))
        if start:  # one batch ahead, so that the device never waits for the host
            parts[-2] = jax.device_get(parts[-2])
            progress(start)
    parts[-1] = jax.device_get(parts[-1])
    progress(num)
    return jax.tree.map(lambda *results: np.concatenate(results)[:num], *parts)


def lower(
    function: Callable[..., PyTree],
    model: nnx.Module,
    arrays: Sequence[Any],
    *,
    batch_size: int,
    devices: Sequence[jax.Device],
) -> jax.stages.Lowered:
    """Returns the program that `in_batches` runs on every batch, lowered from shapes alone.

    The devices need not exist (`jax.experimental.topologies`), and `model` may be abstract.
    """
    mesh = Mesh(np.asarray(devices), (_AXIS,))
    batch_size = _no_larger_than_needed(batch_size, len(arrays[0]), len(devices))
    same, divided = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), (_AXIS,)))
    graphdef, state = nnx.split(model)
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=same), state)
    examples = [np.asarray(array[np.zeros(1, np.int32)]) for array in arrays]
    batch = [
        jax.ShapeDtypeStruct(
            (batch_size, *example.shape[1:]),
            jax.dtypes.canonicalize_dtype(example.dtype),
            sharding=divided,
        )
        for example in examples
    ]
    return _apply.lower(function, mesh if len(devices) > 1 else None, graphdef, state, batch, ())


def outline(
    model: nnx.Module, images: Num[Array, "n h w c"] | Num[np.ndarray, "n h w c"]
) -> Output:
    """Returns the shapes of all that the network captures for one image; computes nothing."""
    image = jax.ShapeDtypeStruct((1, *images.shape[1:]), images.dtype)
    graphdef, state = nnx.split(model)
    return jax.eval_shape(partial(_apply, _captured, None, graphdef), state, [image], ())


def check_labels(labels: Any, images: Any, num_classes: int) -> None:
    """Raises ValueError unless `labels` has one class, in [0, num_classes), for each image."""
    if np.shape(labels) != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels must be one integer for each of the {len(images)} images, got "
            f"{labels.dtype}{list(np.shape(labels))}"
        )
    low, high = np.min(labels), np.max(labels)
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels must be classes of the network, 0 to {num_classes - 1}; got {low} to {high}"
        )


def _no_larger_than_needed(batch_size: int, num: int, num_devices: int) -> int:
    """Lowers `batch_size` for a small set, so that it is not padded to a large batch."""
    return min(batch_size, -(-num // num_devices) * num_devices)


def _put(array: Any, places: np.ndarray, mesh: Mesh | None) -> Any:
    """Returns the examples at `places`, divided over the devices; a process reads only its own."""
    if mesh is None:
        return array[places]
    numbers = of_this_process(list(mesh.devices))
    local = np.concatenate([np.split(places, mesh.size)[n] for n in numbers])
    sharding = NamedSharding(mesh, PartitionSpec(_AXIS))
    return jax.make_array_from_process_local_data(sharding, np.asarray(array[local]))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _apply(function, mesh, graphdef, state, batch, shared):
    def apply(state, batch, shared):
        model = nnx.merge(graphdef, state)
        model.eval()  # the copy inside this program
        return function(model, *batch, *shared)

    if mesh is None:
        return apply(state, batch, shared)

    def apply_and_gather(*args):
        return jax.tree.map(lambda x: lax.all_gather(x, _AXIS, tiled=True), apply(*args))

    same, divided = PartitionSpec(), PartitionSpec(_AXIS)
    return jax.shard_map(
        apply_and_gather, mesh=mesh, in_specs=(same, divided, same), out_specs=same, check_vma=False
    )(state, batch, shared)


def _captured(model: Any, images: Num[Array, "n h w c"]) -> Output:
    return model(images, capture=True)
