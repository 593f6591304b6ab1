"""A function of a network and of examples, for a batch at a time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Num, PyTree, Shaped

from capsjax.models import Output


def in_batches(
    function: Callable[..., PyTree],
    model: nnx.Module,
    arrays: Sequence[Shaped[Array, "n ..."] | Shaped[np.ndarray, "n ..."]],
    *shared: PyTree,
    batch_size: int = 128,
) -> PyTree:
    """`function(model, *batch, *shared)`, batch by batch, its results joined on the host.

    It is compiled once for all batches and for all networks of the same structure: the last batch
    is filled up with its last example, whose further results are dropped. The network is in
    evaluation mode, and is not changed.

    Args:
      function: of a batch of `arrays`, to arrays with the batch's leading axis; hashable, and
        equal wherever it does the same (a function of a module is, a lambda is not).
      model: a network.
      arrays: one or several with the same leading axis.
      *shared: further arguments, the same for all batches: arrays.
      batch_size: examples at a time.

    Raises:
      ValueError: no examples, arrays of different length, or a batch size < 1.
    """
    sizes = {len(array) for array in arrays}
    if len(sizes) != 1 or 0 in sizes:
        lengths = ", ".join(str(len(array)) for array in arrays)
        raise ValueError(f"expected arrays of one length, at least 1; got lengths {lengths}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    (num,) = sizes
    batch_size = min(batch_size, num)
    graphdef, state = nnx.split(model)
    parts = []
    for start in range(0, num, batch_size):
        places = np.minimum(np.arange(start, start + batch_size), num - 1)
        batch = [array[places] for array in arrays]
        parts.append(_apply(function, graphdef, state, batch, shared))
        if start:  # one batch ahead, so that the device never waits for the host
            parts[-2] = jax.device_get(parts[-2])
    return jax.tree.map(lambda *results: np.concatenate(results)[:num], *jax.device_get(parts))


def outline(
    model: nnx.Module, images: Num[Array, "n h w c"] | Num[np.ndarray, "n h w c"]
) -> Output:
    """The shapes of everything that the network captures of one image; nothing is computed.

    Raises:
      ValueError: the images do not fit the network.
    """
    image = jax.ShapeDtypeStruct((1, *images.shape[1:]), images.dtype)
    return jax.eval_shape(partial(_apply, _captured, *nnx.split(model)), [image], ())


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


@partial(jax.jit, static_argnums=(0, 1))
def _apply(function, graphdef, state, batch, shared):
    model = nnx.merge(graphdef, state)
    model.eval()  # of the copy that exists in this program
    return function(model, *batch, *shared)


def _captured(model: Any, images: Num[Array, "n h w c"]) -> Output:
    return model(images, capture=True)
