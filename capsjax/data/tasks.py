"""What to train and test on: arrays, and how one of their images becomes one example."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from capsjax.data.dataset import Dataset
from capsjax.data.sources import load
from capsjax.data.splits import stratified_holdout
from capsjax.data.transforms import shift
from capsjax.functional import to_unit


class Arrays(NamedTuple):
    """Source images and labels, as they lie on the device."""

    images: UInt8[Array, "n h w c"] | UInt8[np.ndarray, "n h w c"]
    labels: Int[Array, "n"] | Int[np.ndarray, "n"]


class Example(NamedTuple):
    """What a network sees (one example, or a batch with a leading axis)."""

    image: Float[Array, "h w c"]
    label: Float[Array, "classes"]


@dataclass(frozen=True)
class Task:
    """Single-label classification, training images shifted at random.

    Attributes:
      name: of the source, see `capsjax.data.load`.
      class_names: in the order of the labels.
      train: what the parameters are fitted to.
      validation: held out of the training split, stratified; what the best checkpoint is
        chosen by. Empty with `validation_fraction=0`.
      max_shift: training images are shifted by up to so many pixels per axis.
    """

    name: str
    class_names: tuple[str, ...]
    train: Arrays
    validation: Arrays
    max_shift: int

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an example's image."""
        height, width, channels = self.train.images.shape[1:]
        return height, width, channels

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def training_example(
        self, key: PRNGKeyArray, image: UInt8[Array, "h w c"], label: Int[Array, ""]
    ) -> Example:
        """One randomly shifted example; a pure function of `key`."""
        return self.example(shift(key, image, self.max_shift), label)

    def example(self, image: UInt8[Array, "h w c"], label: Int[Array, ""]) -> Example:
        """One example as it is, for evaluation."""
        return Example(to_unit(image), jax.nn.one_hot(label, self.num_classes))


def create(
    name: str,
    *,
    max_shift: int = 0,
    validation_fraction: float = 0.1,
    data_dir: str | None = None,
) -> Task:
    """The task of classifying the data set `name`.

    The validation part is the same for every seed of training: a stratified
    `validation_fraction` of the training split. The test split is never touched here.

    Raises:
      ValueError: `max_shift` negative or as large as the image, a fraction outside [0, 1);
        and what `capsjax.data.load` raises.
    """
    if not 0 <= validation_fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1), got {validation_fraction}")
    dataset = load(name, "train", data_dir)
    side = min(dataset.images.shape[1:3])
    if not 0 <= max_shift < side:
        raise ValueError(f"max_shift must be in [0, {side}) for these images, got {max_shift}")
    kept, held_out = np.arange(len(dataset.labels)), np.arange(0)
    if validation_fraction:
        kept, held_out = stratified_holdout(dataset.labels, validation_fraction, seed=0)
    return Task(name, dataset.class_names, take(dataset, kept), take(dataset, held_out), max_shift)


def take(dataset: Dataset, indices: Int[np.ndarray, "n"] | slice = slice(None)) -> Arrays:
    """The arrays of `dataset` at `indices`."""
    return Arrays(dataset.images[indices], dataset.labels[indices])
