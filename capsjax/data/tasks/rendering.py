"""Examples of an evaluation set as arrays on the host, to look at or to use elsewhere."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt8

from capsjax.data.tasks.task import EvaluationSet

_BATCH = 512


class Rendered(NamedTuple):
    """Examples, as bytes."""

    images: UInt8[np.ndarray, "n h w c"]  # rounded to 0 … 255
    labels: Float[np.ndarray, "n classes"]  # 1 for every class that is present, else 0
    # by name, what the recipe drew; `source` (where there are several, `sources`) are places among
    # the set's source images
    parameters: dict[str, np.ndarray]


def render(examples: EvaluationSet, indices: Int[np.ndarray, "n"] | None = None) -> Rendered:
    """Returns the examples at `indices`, all of them by default."""
    if indices is None:
        indices = np.arange(len(examples))

    def make(example):
        index, images, labels = example
        drawn_parameters = examples.numbered.draw(index, images)
        made = examples.recipe.render(images, labels, drawn_parameters)
        return (255 * made.image).round().astype(np.uint8), made.label, drawn_parameters

    chosen = examples.chosen[indices]
    sources = indices, examples.source.images[chosen], examples.source.labels[chosen]
    batch_size = min(_BATCH, len(indices))
    made = jax.jit(lambda sources: jax.lax.map(make, sources, batch_size=batch_size))(sources)
    images, labels, drawn_parameters = jax.tree.map(np.asarray, made)
    named = jax.tree_util.tree_flatten_with_path(drawn_parameters)[0]
    parameters = {
        jax.tree_util.keystr(path, simple=True, separator="_"): values for path, values in named
    }
    source = {"source": chosen[:, 0]} if chosen.shape[1] == 1 else {"sources": chosen}
    return Rendered(images, labels, source | parameters)


def spread(examples: EvaluationSet, count: int) -> Int[np.ndarray, "count"]:
    """Returns `count` evenly spaced indices, at most all, so that they cover all sources."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    count = min(count, len(examples))
    return np.arange(count) * len(examples) // count
