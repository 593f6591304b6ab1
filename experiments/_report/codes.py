"""How poses are spread over the data, and whether the decoder learned from them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from _report.decoder import Drawing
from _report.results import Examples, Results

FEWEST = 5  # images of a class whose own standard deviations are used


class Spread(NamedTuple):
    """How the poses of each class shown are spread over its images in `Examples`.

    Attributes:
      means: of the poses.
      deviations: their standard deviations, over the images of all classes where a class has few.
    """

    means: Float[np.ndarray, "shown d"]
    deviations: Float[np.ndarray, "shown d"]


def spread(results: Results, examples: Examples) -> Spread:
    """The spread of the poses of true classes; `examples` must have poses."""
    assert examples.poses is not None
    labels = results.dataset.labels[examples.places]
    own = examples.poses[np.arange(len(labels)), labels]
    by_class = [own[labels == label] for label in examples.by_class]
    deviations = [(poses if len(poses) >= FEWEST else own).std(0) for poses in by_class]
    # An element that never changes still has a slider.
    return Spread(
        np.stack([poses.mean(0) for poses in by_class]), np.maximum(np.stack(deviations), 1e-6)
    )


class Errors(NamedTuple):
    """Squared errors, the means over images and pixels.

    Attributes:
      decoder: what the decoder draws, given the pose of the true class.
      typical: the mean image of the true class, over the whole split.
    """

    decoder: float
    typical: float

    @property
    def undertrained(self) -> bool:
        """Whether the mean image of its class would do as well as what the decoder draws."""
        return self.decoder >= self.typical


def errors(results: Results, examples: Examples, drawing: Drawing) -> Errors:
    """The errors on the images in `examples`, which must have poses."""
    assert examples.poses is not None
    dataset = results.dataset
    images, labels = dataset.images[examples.places], dataset.labels[examples.places]
    means = {label: dataset.images[dataset.labels == label].mean(0) for label in examples.by_class}
    typical = np.stack([means[label] for label in labels])
    drawn = 255 * drawing(examples.poses, labels)
    return Errors(*(float(np.mean(((made - images) / 255) ** 2)) for made in (drawn, typical)))
