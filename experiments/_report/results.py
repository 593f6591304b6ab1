"""What the page shows."""

from itertools import chain
from typing import NamedTuple

import numpy as np
from flax import nnx
from jaxtyping import Bool, Float, Int

from capsjax.data import Dataset
from capsjax.evaluation.summaries import Summary
from capsjax.models import Output
from capsjax.training.checkpoints import Checkpoint
from capsjax.training.history import History

# Enough to see what the network does; a page of a set with a hundred classes stays small too.
MAX_CLASSES = 20
IMAGES_PER_CLASS = 6


class Results(NamedTuple):
    """A network, its training, and its answers on a split.

    Attributes:
      checkpoint: the network.
      history: of the whole run, which may be longer than the checkpoint's.
      dataset: the split it was evaluated on.
      scores: of every image of `dataset`.
      summary: of these scores.
    """

    checkpoint: Checkpoint
    history: History
    dataset: Dataset
    scores: Float[np.ndarray, "n classes"]
    summary: Summary

    @property
    def predicted(self) -> Int[np.ndarray, "n"]:
        return self.scores.argmax(-1)

    @property
    def right(self) -> Bool[np.ndarray, "n"]:
        return self.predicted == self.dataset.labels


class Examples(NamedTuple):
    """The first images of each class and what the network says of them.

    Attributes:
      by_class: label → places in the data set.
      output: of the network, in the same order.
    """

    by_class: dict[int, list[int]]
    output: Output


def examples(results: Results) -> Examples:
    """One run of the network for both sections that show reconstructions."""
    labels = results.dataset.labels
    by_class = {
        int(label): np.flatnonzero(labels == label)[:IMAGES_PER_CLASS].tolist()
        for label in np.unique(labels)[:MAX_CLASSES]
    }
    images = results.dataset.images[list(chain.from_iterable(by_class.values()))]
    output = nnx.jit(lambda model, images: model(images))(results.checkpoint.model, images)
    return Examples(by_class, output)
