"""The decoder as the page has it: its layers, or pictures made here where these are too large."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from capsjax.layers import Decoder

LARGEST = 3_000_000  # bytes of 16-bit weights: four millions in the page's base64
CLOSE = 1 / 255
SAMPLES = np.arange(-3, 4)  # standard deviations from the class's mean


class Layer(NamedTuple):
    """activation(x kernel + bias)."""

    kernel: Float[np.ndarray, "n m"]
    bias: Float[np.ndarray, "m"]
    activation: str

    def __call__(self, x: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b m"]:
        return ACTIVATIONS[self.activation](x @ self.kernel.astype(np.float32) + self.bias)


# The same as ACTIVATIONS in decoder.js.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


class Drawing(NamedTuple):
    """Draws images from class poses as the network's decoder does.

    Attributes:
      decoder: of the network.
      compiled: the same, as one program.
      conditional: whether it sees one class's pose alone; otherwise it sees those of all.
    """

    decoder: Callable[[jax.Array, jax.Array], jax.Array]
    compiled: Callable[[np.ndarray, np.ndarray], jax.Array]
    conditional: bool

    @classmethod
    def of(cls, model: Any) -> "Drawing | None":
        """The decoder of a network; None where it has none that takes poses and masks."""
        decoder = getattr(model, "decoder", None)
        if decoder is None:
            return None
        # Every published network with a decoder and without this attribute is conditional.
        return cls(decoder, jax.jit(decoder), getattr(model, "conditional", True))

    def __call__(
        self, poses: Float[np.ndarray, "n classes d"], labels: Int[np.ndarray, "n"] | int
    ) -> Float[np.ndarray, "n h w c"]:
        """The images that the poses of the classes `labels` stand for."""
        num, classes, _ = poses.shape
        masks = np.ones((num, classes), np.float32)
        if self.conditional:
            masks = np.eye(classes, dtype=np.float32)[np.broadcast_to(labels, num)]
        return np.asarray(self.compiled(poses, masks))


def layers(
    drawing: Drawing,
    shown: Sequence[int],
    means: Float[np.ndarray, "shown d"],
    deviations: Float[np.ndarray, "shown d"],
    num_classes: int,
) -> list[Layer] | None:
    """The decoder's layers with weights in 16 bits, for the poses of the classes shown alone.

    A decoder that is not conditional keeps the weights of all classes. None: the decoder is not
    made of dense layers, is too large, or 16 bits change what it draws by more than 1/255 at the
    means or three deviations from them.
    """
    decoder = drawing.decoder
    if not isinstance(decoder, Decoder):
        return None
    kernels = [np.asarray(layer.kernel[...]) for layer in decoder.layers]
    biases = [np.asarray(layer.bias[...]) for layer in decoder.layers]
    size = means.shape[-1]
    seen = list(shown) if drawing.conditional else list(range(num_classes))
    kernels[0] = kernels[0].reshape(num_classes, size, -1)[seen].reshape(len(seen) * size, -1)
    if sum(kernel.size for kernel in kernels) * 2 > LARGEST:
        return None
    names = ["relu"] * (len(kernels) - 1) + ["sigmoid"]
    with np.errstate(over="ignore"):
        rounded = [kernel.astype(np.float16) for kernel in kernels]
    found = [Layer(*parts) for parts in zip(rounded, biases, names, strict=True)]
    labels = np.repeat(shown, 3)
    poses = np.zeros((len(labels), num_classes, size), np.float32)
    ends = means[:, None] + np.array([[-3], [0], [3]]) * deviations[:, None]
    poses[np.arange(len(labels)), labels] = ends.reshape(-1, size)
    x = poses[:, seen].reshape(len(labels), -1)
    for layer in found:
        x = layer(x)
    far = np.abs(x.reshape(len(labels), *decoder.image_shape) - drawing(poses, labels)).max()
    return found if far <= CLOSE else None


def effects(
    drawing: Drawing,
    poses: Float[np.ndarray, "n classes d"],
    label: int,
    deviation: Float[np.ndarray, "d"],
) -> Float[np.ndarray, "d"]:
    """How much a pixel changes, on average, when an element goes from −1 to +1 deviation.

    The elements are those of the pose of class `label`; the average is over pixels and images.
    """
    num, classes, size = poses.shape
    moved = np.repeat(poses, 2 * size, axis=0).reshape(num, size, 2, classes, size)
    moved[:, :, 0, label] -= deviation * np.eye(size)
    moved[:, :, 1, label] += deviation * np.eye(size)
    images = drawing(moved.reshape(-1, classes, size), label).reshape(num, size, 2, -1)
    return np.abs(images[:, :, 1] - images[:, :, 0]).mean((0, 2))


def samples(
    drawing: Drawing,
    poses: Float[np.ndarray, "classes d"],
    label: int,
    mean: Float[np.ndarray, "d"],
    deviation: Float[np.ndarray, "d"],
) -> Float[np.ndarray, "rows columns h w c"]:
    """Pictures of one image's poses with an element at each of `SAMPLES`, a row for each element.

    The first of the row after them is the image's own reconstruction, the second that of the mean.
    """
    size = poses.shape[-1]
    moved = np.repeat(poses[None], (size + 1) * len(SAMPLES), axis=0)
    grid = moved.reshape(size + 1, len(SAMPLES), *poses.shape)
    for element in range(size):
        grid[element, :, label, element] = mean[element] + SAMPLES * deviation[element]
    grid[size, 1, label] = mean
    images = drawing(moved, label)
    return images.reshape(size + 1, len(SAMPLES), *images.shape[1:])
