"""Examples of an evaluation set as arrays on the host, to look at or to use elsewhere."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt8

from capsjax.data.tasks.task import EACH, Arrays, EvaluationSet, Present

_BATCH = 512


class Rendered(NamedTuple):
    """Examples, as bytes.

    Attributes:
      images: rounded to 0 … 255.
      labels: 1 for every class that is present, else 0.
      parameters: by name, what the recipe drew; a source is a place in the set's `arrays`.
    """

    images: UInt8[np.ndarray, "n h w c"]
    labels: Float[np.ndarray, "n classes"]
    parameters: dict[str, np.ndarray]


def render(examples: EvaluationSet, indices: Int[np.ndarray, "n"] | None = None) -> Rendered:
    """The examples at `indices`, all of them by default."""
    if indices is None:
        indices = np.arange(len(examples))

    labels = jax.device_put(examples.arrays.labels)
    sources = jax.jit(jax.vmap(examples.sources, in_axes=(None, 0)))

    @jax.jit
    def batch(arrays, indices):
        drawn = jax.vmap(examples.parameters, in_axes=(EACH, 0))(arrays, indices)
        made = jax.vmap(examples.recipe.render, in_axes=(EACH, 0))(arrays, drawn)
        images = (255 * made.image).round().astype(np.uint8)
        return images, made.label, drawn

    parts = []
    for start in range(0, len(indices), _BATCH):
        # Filled up with the last one, so that one program serves all batches.
        places = np.minimum(np.arange(start, start + _BATCH), len(indices) - 1)
        needed = np.asarray(sources(labels, indices[places]))
        present = Present(needed, examples.arrays.images[needed])
        part = batch(Arrays(present, labels), indices[places])
        parts.append(jax.tree.map(np.asarray, part))
    images, labels, drawn = jax.tree.map(lambda *xs: np.concatenate(xs)[: len(indices)], *parts)
    named = jax.tree_util.tree_flatten_with_path(drawn)[0]
    parameters = {
        jax.tree_util.keystr(path, simple=True, separator="_"): values for path, values in named
    }
    return Rendered(images, labels, parameters)


def spread(examples: EvaluationSet, count: int) -> Int[np.ndarray, "count"]:
    """`count` indices at even distances, so that they cover all sources, at most all.

    Raises:
      ValueError: `count` is not positive.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    count = min(count, len(examples))
    return np.arange(count) * len(examples) // count
