"""Applies functions of a network and of examples batch by batch."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array, PyTree

from capsjax.functional import check_range
from capsjax.models import Output
from capsjax.training.parallel import (
    Program,
    check_batch_size,
    divide,
    of_this_process,
    on_devices,
    replicate,
)
from capsjax.training.state import DEVICES


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
      function: returns arrays with the batch's leading axis; hashable. Equal functions share a
        compiled program: a function of a module is equal in all calls, a new lambda is not.
      model: a network; with several hosts, the same on each.
      arrays: of one length; anything that NumPy arrays of integers can index, such as `LazyImages`.
        Floats [n, h, w, c] are taken for images and must be in [0, 1].
      *shared: further arguments, the same for all batches: trees of arrays.
      batch_size: examples at a time, on all devices together.
      devices: of all hosts that make this call. Default: the first of this process.
      progress: called with the number of examples done.
    """
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) != 1 or 0 in lengths:
        raise ValueError(f"expected arrays of one length, at least 1; got lengths {lengths}")
    num, devices = lengths[0], tuple(devices) or tuple(jax.local_devices()[:1])
    check_batch_size(batch_size, len(devices))
    batch_size = _no_larger_than_needed(batch_size, num, len(devices))
    graphdef, state = nnx.split(model)
    state, shared = replicate((state, shared), devices)
    program, own = _program(function, graphdef, devices), of_this_process(devices)
    parts: list[PyTree] = []
    for start in range(0, num, batch_size):
        places = np.minimum(np.arange(start, start + batch_size), num - 1)
        shares = places.reshape(len(devices), -1)[own]  # a process reads only its own
        read = [np.asarray(array[shares]) for array in arrays]
        for images in (x for x in read if x.ndim == 5):  # [devices, n, h, w, c], not yet traced
            check_range(images)
        batch = divide(read, devices)
        parts.append(program(state, batch, shared))
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
    """Lowers what `in_batches` runs on every batch, for devices and models that need not exist."""
    graphdef, state = nnx.split(model)
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    batch_size = _no_larger_than_needed(batch_size, len(arrays[0]), len(devices))
    examples = [np.asarray(array[np.zeros(1, np.int32)]) for array in arrays]
    share = (len(devices), batch_size // len(devices))
    batch = [
        jax.ShapeDtypeStruct((*share, *x.shape[1:]), jax.dtypes.canonicalize_dtype(x.dtype))
        for x in examples
    ]
    return _program(function, graphdef, tuple(devices)).lower(state, batch, ())


def outline(model: nnx.Module, image_shape: Sequence[int]) -> Output:
    """Returns the shapes of all that the network captures for one image; computes nothing."""
    graphdef, state = nnx.split(model)

    def captured(state: nnx.State, images: Array) -> Output:
        output = merged(graphdef, state)(images, capture=True)
        # JAX would sort the names in a dict.
        routed, features = OrderedDict(output.routed), OrderedDict(output.features)
        return output._replace(routed=routed, features=features)

    image = jax.ShapeDtypeStruct((1, *image_shape), np.float32)
    return jax.eval_shape(captured, state, image)


def merged(graphdef: nnx.GraphDef, state: nnx.State) -> Any:
    """Returns the network in evaluation mode; for use while a program is traced."""
    model: Any = nnx.merge(graphdef, state)
    model.eval()
    return model


def check_labels(labels: Any, images: Any, num_classes: int) -> None:
    """Raises ValueError unless `labels` has one class, in [0, num_classes), for each image."""
    labels = np.asarray(labels)
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels must be one integer for each of the {len(images)} images, got "
            f"{labels.dtype}{list(labels.shape)}"
        )
    low, high = np.min(labels), np.max(labels)
    if low < 0 or high >= num_classes:
        raise ValueError(f"labels must be classes, 0 to {num_classes - 1}; got {low} to {high}")


def _no_larger_than_needed(batch_size: int, num: int, num_devices: int) -> int:
    return min(batch_size, -(-num // num_devices) * num_devices)


@lru_cache(maxsize=16)
def _program(
    function: Callable[..., PyTree], graphdef: nnx.GraphDef, devices: tuple[jax.Device, ...]
) -> Program:
    def apply(state: nnx.State, batch: Sequence[Array], shared: Sequence[PyTree]) -> PyTree:
        results = function(merged(graphdef, state), *batch, *shared)
        if len(devices) == 1:  # XLA would not drop the collective
            return results
        return jax.tree.map(lambda x: lax.all_gather(x, DEVICES, tiled=True), results)

    return on_devices(apply, devices, (None, 0, None))
