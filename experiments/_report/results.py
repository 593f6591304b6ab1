"""What the page shows: a network's answers, and of some images its poses and reconstructions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from capsjax.data import Dataset
from capsjax.evaluation.batches import in_batches
from capsjax.evaluation.summaries import Summary
from capsjax.runs.checkpoints import Checkpoint
from capsjax.runs.history import History

# Enough to see what the network does; a page of a set with a hundred classes stays small too.
MAX_CLASSES = 20
IMAGES_PER_CLASS = 6
MEASURED_PER_CLASS = 30
MAX_MISTAKES = 12


class Results(NamedTuple):
    """A network, its training, and its answers on a split."""

    name: str  # its directory, or the file of a released network
    checkpoint: Checkpoint  # the network
    history: History  # of the whole run, which may be longer than the checkpoint's
    dataset: Dataset  # the split it was evaluated on
    scores: Float[np.ndarray, "n classes"]  # of every image of `dataset`
    summary: Summary  # of these scores

    @property
    def predicted(self) -> Int[np.ndarray, "n"]:
        return self.scores.argmax(-1)

    @property
    def correct(self) -> Bool[np.ndarray, "n"]:
        return self.predicted == self.dataset.labels

    @property
    def lead(self) -> Float[np.ndarray, "n"]:
        """How far the highest score is above that of the true class."""
        own = np.take_along_axis(self.scores, self.dataset.labels[:, None], axis=-1)[:, 0]
        return self.scores.max(-1) - own

    def worst_mistakes(self) -> Int[np.ndarray, "m"]:
        """Lists the wrong answers, those first in which the wrong class leads most."""
        wrong = np.flatnonzero(~self.correct)
        return wrong[np.argsort(-self.lead[wrong], kind="stable")]

    def named(self, place: int) -> tuple[str, str]:
        """Returns the names of an image's class and of the predicted one."""
        names = self.dataset.class_names
        return names[self.dataset.labels[place]], names[self.predicted[place]]


class Examples(NamedTuple):
    """Images of each class and what the network says of them."""

    # label → places in the data set of its first images, which the page shows
    by_class: dict[int, list[int]]
    # those, further images of the same classes, and the worst mistakes
    places: Int[np.ndarray, "n"]
    # of all class capsules, for the images at `places`; None without class poses
    poses: Float[np.ndarray, "n classes d"] | None
    # of these images, from the class with the highest score, or from all classes where the decoder
    # is not conditional; None without decoder
    reconstruction: Float[np.ndarray, "n h w c"] | None

    def rows(self, places: Sequence[int]) -> list[int]:
        """Returns the rows of images in the arrays."""
        return np.searchsorted(self.places, places).tolist()


def examples(results: Results) -> Examples:
    """Runs the network once for all sections that show poses and reconstructions."""
    labels = results.dataset.labels
    shown = np.unique(labels)[:MAX_CLASSES].tolist()
    first = {label: np.flatnonzero(labels == label)[:MEASURED_PER_CLASS] for label in shown}
    worst = results.worst_mistakes()[:MAX_MISTAKES]
    worst = worst[np.isin(labels[worst], shown)]
    places = np.unique(np.concatenate([*first.values(), worst]))
    images = results.dataset.images[places]
    poses, reconstruction = in_batches(_answers, results.checkpoint.model, [images])
    by_class = {label: indices[:IMAGES_PER_CLASS].tolist() for label, indices in first.items()}
    return Examples(by_class, places, poses, reconstruction)


def _answers(model: Any, images: Any) -> Any:
    output = model(images)
    return output.poses, output.reconstruction
