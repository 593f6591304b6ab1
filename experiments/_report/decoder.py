"""The decoder: what it draws from poses, how good that is, and its weights for the page."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from _report.results import Examples, Results
from capsjax.layers import Decoder

LARGEST = 3_000_000  # bytes of 16-bit weights: four millions in the page's base64
CLOSE = 1 / 255
FEWEST = 5  # images of a class whose own standard deviations are used
LIMIT = 3  # standard deviations by which elements are moved


class Drawing(NamedTuple):
    """Draws images from class poses as the network's decoder does."""

    decoder: Callable[[jax.Array, jax.Array], jax.Array]  # of the network
    compiled: Callable[[np.ndarray, np.ndarray], jax.Array]  # the same, as one program
    conditional: bool  # whether it sees one class's pose alone; otherwise it sees those of all

    @classmethod
    def of(cls, model: Any) -> "Drawing | None":
        """Returns the decoder of a network; None where it has none that takes poses and masks."""
        decoder = getattr(model, "decoder", None)
        if decoder is None:
            return None
        # Every published network with a decoder and without this attribute is conditional.
        return cls(decoder, jax.jit(decoder), getattr(model, "conditional", True))

    def __call__(
        self, poses: Float[np.ndarray, "n classes d"], labels: Int[np.ndarray, "n"] | int
    ) -> Float[np.ndarray, "n h w c"]:
        """Draws the images that the poses of the classes `labels` stand for."""
        num, classes, _ = poses.shape
        masks = np.ones((num, classes), np.float32)
        if self.conditional:
            masks = np.eye(classes, dtype=np.float32)[np.broadcast_to(labels, num)]
        return np.asarray(self.compiled(poses, masks))


class Spread(NamedTuple):
    """How the poses of each class shown are spread over its images in `Examples`."""

    means: Float[np.ndarray, "shown d"]  # of the poses
    # their standard deviations, over the images of all classes where a class has few
    deviations: Float[np.ndarray, "shown d"]


def spread(results: Results, examples: Examples) -> Spread:
    """Returns the spread of the poses of true classes; `examples` must have poses."""
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
    """Squared errors, the means over images and pixels."""

    decoder: float  # what the decoder draws, given the pose of the true class
    typical: float  # the mean image of the true class, over the whole split

    @property
    def undertrained(self) -> bool:
        """Whether the mean image of its class would do as well as what the decoder draws."""
        return self.decoder >= self.typical


def errors(results: Results, examples: Examples, drawing: Drawing) -> Errors:
    """Returns the errors on the images in `examples`, which must have poses."""
    assert examples.poses is not None
    dataset = results.dataset
    images, labels = dataset.images[examples.places], dataset.labels[examples.places]
    means = {label: dataset.images[dataset.labels == label].mean(0) for label in examples.by_class}
    typical = np.stack([means[label] for label in labels])
    images_drawn = 255 * drawing(examples.poses, labels)
    return Errors(
        *(float(np.mean(((made - images) / 255) ** 2)) for made in (images_drawn, typical))
    )


def moved(
    drawing: Drawing,
    poses: Float[np.ndarray, "classes d"],
    label: int,
    values: Float[np.ndarray, "d k"],
) -> Float[np.ndarray, "d k h w c"]:
    """Draws an image with each element of the pose of class `label` at each of its `values`."""
    size, count = values.shape
    changed = np.repeat(poses[None], size * count, axis=0).reshape(size, count, *poses.shape)
    for element in range(size):
        changed[element, :, label, element] = values[element]
    images = drawing(changed.reshape(-1, *poses.shape), label)
    return images.reshape(size, count, *images.shape[1:])


def effects(
    results: Results, examples: Examples, drawing: Drawing, own: Spread
) -> Float[np.ndarray, "shown d"]:
    """Measures the mean change of a pixel when an element goes from −3 to +3 deviations.

    The average is over pixels and over the first images of each class.
    """
    assert examples.poses is not None
    changes = []
    for k, (label, places) in enumerate(examples.by_class.items()):
        ends = own.means[k][:, None] + own.deviations[k][:, None] * np.array([-LIMIT, LIMIT])
        images = [
            moved(drawing, poses, label, ends) for poses in examples.poses[examples.rows(places)]
        ]
        changes.append(np.mean([np.abs(i[:, 1] - i[:, 0]).mean((1, 2, 3)) for i in images], axis=0))
    return np.stack(changes)


class Layer(NamedTuple):
    """x kernel + bias, then ReLU or, in the last layer, a sigmoid."""

    kernel: Float[np.ndarray, "n m"]
    bias: Float[np.ndarray, "m"]


def layers(
    drawing: Drawing, shown: Sequence[int], own: Spread, num_classes: int
) -> list[Layer] | None:
    """Returns the decoder's layers in 16 bits, for the poses of the classes shown alone.

    A decoder that is not conditional keeps the weights of all classes. None: the decoder is not
    made of dense layers, is too large, or 16 bits change what it draws by more than 1/255 at the
    means or three deviations from them.
    """
    decoder = drawing.decoder
    if type(decoder) is not Decoder:
        return None
    size = own.means.shape[-1]
    seen = list(shown) if drawing.conditional else list(range(num_classes))
    kernels = [np.asarray(layer.kernel[...]) for layer in decoder.layers]
    kernels[0] = kernels[0].reshape(num_classes, size, -1)[seen].reshape(len(seen) * size, -1)
    if sum(kernel.size for kernel in kernels) * 2 > LARGEST:
        return None
    with np.errstate(over="ignore"):
        rounded = [kernel.astype(np.float16) for kernel in kernels]
    biases = [np.asarray(layer.bias[...]) for layer in decoder.layers]
    labels = np.repeat(shown, 3)
    poses = np.zeros((len(labels), num_classes, size), np.float32)
    ends = own.means[:, None] + np.array([[-LIMIT], [0], [LIMIT]]) * own.deviations[:, None]
    poses[np.arange(len(labels)), labels] = ends.reshape(-1, size)
    x = poses[:, seen].reshape(len(labels), -1)
    for kernel, bias in zip(rounded, biases, strict=True):
        x = np.maximum(sums := x @ kernel.astype(np.float32) + bias, 0)
    image = 1 / (1 + np.exp(-sums)).reshape(len(labels), *decoder.image_shape)
    if np.abs(image - drawing(poses, labels)).max() > CLOSE:
        return None
    return [Layer(*parts) for parts in zip(rounded, biases, strict=True)]
