"""The decoder: what it draws from poses, how good that is, and its weights for the page."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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


class Errors(NamedTuple):
    """Squared errors, the means over images and pixels."""

    decoder: float  # what the decoder draws, given the pose of the true class
    typical: float  # the mean image of the true class, over the whole split

    @property
    def undertrained(self) -> bool:
        """Whether the mean image of its class would do as well as what the decoder draws."""
        return self.decoder >= self.typical


class Layer(NamedTuple):
    """x kernel + bias, then ReLU or, in the last layer, a sigmoid."""

    kernel: Float[np.ndarray, "n m"]
    bias: Float[np.ndarray, "m"]


@dataclass(frozen=True)
class Drawing:
    """A network's decoder, and the class poses of `examples`, which `of` makes sure are there."""

    results: Results
    examples: Examples
    draw: Callable[[np.ndarray, np.ndarray], jax.Array]  # from poses and masks, compiled

    @classmethod
    def of(cls, results: Results, examples: Examples) -> "Drawing | None":
        """Returns the decoder of a network; None where it has none that takes poses and masks."""
        decoder = getattr(results.checkpoint.model, "decoder", None)
        if decoder is None or examples.poses is None:
            return None
        return cls(results, examples, jax.jit(decoder))

    @property
    def conditional(self) -> bool:
        """Whether it sees one class's pose alone; otherwise it sees those of all."""
        # Every published network with a decoder and without this attribute is conditional.
        return getattr(self.results.checkpoint.model, "conditional", True)

    @property
    def shown(self) -> list[int]:
        """The classes shown."""
        return list(self.examples.by_class)

    @property
    def seen(self) -> list[int]:
        """The classes whose poses the page needs."""
        return self.shown if self.conditional else list(range(self.results.dataset.num_classes))

    @property
    def labels(self) -> Int[np.ndarray, "n"]:
        """The classes of the examples."""
        return self.results.dataset.labels[self.examples.places]

    def __call__(
        self, poses: Float[np.ndarray, "n classes d"], labels: Int[np.ndarray, "n"] | int
    ) -> Float[np.ndarray, "n h w c"]:
        """Draws the images that the poses of the classes `labels` stand for."""
        num, classes, _ = poses.shape
        masks = np.ones((num, classes), np.float32)
        if self.conditional:
            masks = np.eye(classes, dtype=np.float32)[np.broadcast_to(labels, num)]
        return np.asarray(self.draw(poses, masks))

    @cached_property
    def _by_class(self) -> list[Float[np.ndarray, "m d"]]:
        """The poses of true classes, by class."""
        poses, labels = self.examples.poses, self.labels
        return [poses[labels == label, label] for label in self.shown]

    @cached_property
    def means(self) -> Float[np.ndarray, "shown d"]:
        """The mean pose of each class shown, over its images in the examples."""
        return np.stack([poses.mean(0) for poses in self._by_class])

    @cached_property
    def deviations(self) -> Float[np.ndarray, "shown d"]:
        """Their standard deviations, over the images of all classes where a class has few."""
        every = self.examples.poses[np.arange(len(self.labels)), self.labels]
        enough = [poses if len(poses) >= FEWEST else every for poses in self._by_class]
        # An element that never changes still has a slider.
        return np.maximum(np.stack([poses.std(0) for poses in enough]), 1e-6)

    @cached_property
    def errors(self) -> Errors:
        """The errors on the images in the examples."""
        dataset, labels = self.results.dataset, self.labels
        means = {label: dataset.images[dataset.labels == label].mean(0) for label in self.shown}
        typical = np.stack([means[label] for label in labels])
        drawn = 255 * self(self.examples.poses, labels)
        images = dataset.images[self.examples.places]
        return Errors(*(float(np.mean(((made - images) / 255) ** 2)) for made in (drawn, typical)))

    @cached_property
    def effects(self) -> Float[np.ndarray, "shown d"]:
        """The mean change of a pixel when an element goes from −3 to +3 deviations.

        The average is over pixels and over the first images of each class.
        """
        changes = []
        for k, (label, places) in enumerate(self.examples.by_class.items()):
            ends = self.values(k, np.array([-LIMIT, LIMIT]))
            images = [self.moved(place, label, ends) for place in places]
            changes.append([np.abs(i[:, 1] - i[:, 0]).mean((1, 2, 3)) for i in images])
        return np.stack([np.mean(of_class, axis=0) for of_class in changes])

    def values(self, k: int, steps: np.ndarray) -> Float[np.ndarray, "d steps"]:
        """Returns the elements of the k-th class shown, `steps` deviations from their means."""
        return self.means[k][:, None] + self.deviations[k][:, None] * steps

    def moved(
        self, place: int, label: int, values: Float[np.ndarray, "d k"]
    ) -> Float[np.ndarray, "d k h w c"]:
        """Draws the image at `place` with each element of the pose of `label` at its `values`."""
        poses = self.examples.poses[self.examples.rows([place])[0]]
        size, count = values.shape
        changed = np.repeat(poses[None], size * count, axis=0).reshape(size, count, *poses.shape)
        for element in range(size):
            changed[element, :, label, element] = values[element]
        images = self(changed.reshape(-1, *poses.shape), label)
        return images.reshape(size, count, *images.shape[1:])

    def layers(self) -> list[Layer] | None:
        """Returns the decoder's layers in 16 bits, for the poses of the classes seen alone.

        None: the decoder is not made of dense layers, is too large, or 16 bits change what it draws
        by more than 1/255 at the means or three deviations from them.
        """
        decoder: Any = self.results.checkpoint.model.decoder
        if not isinstance(decoder, Decoder):
            return None
        size, num_classes = self.means.shape[-1], self.results.dataset.num_classes
        kernels = [np.asarray(layer.kernel[...]) for layer in decoder.layers]
        first = kernels[0].reshape(num_classes, size, -1)[self.seen]
        kernels[0] = first.reshape(len(self.seen) * size, -1)
        if sum(kernel.size for kernel in kernels) * 2 > LARGEST:
            return None
        with np.errstate(over="ignore"):
            rounded = [kernel.astype(np.float16) for kernel in kernels]
        biases = [np.asarray(layer.bias[...]) for layer in decoder.layers]
        labels = np.repeat(self.shown, 3)
        poses = np.zeros((len(labels), num_classes, size), np.float32)
        ends = np.array([[-LIMIT], [0], [LIMIT]]) * self.deviations[:, None]
        poses[np.arange(len(labels)), labels] = (self.means[:, None] + ends).reshape(-1, size)
        x = poses[:, self.seen].reshape(len(labels), -1)
        for kernel, bias in zip(rounded, biases, strict=True):
            x = np.maximum(sums := x @ kernel.astype(np.float32) + bias, 0)
        image = 1 / (1 + np.exp(-sums)).reshape(len(labels), *decoder.image_shape)
        if np.abs(image - self(poses, labels)).max() > CLOSE:
            return None
        return [Layer(*parts) for parts in zip(rounded, biases, strict=True)]
