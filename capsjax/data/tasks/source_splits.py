"""What tasks are built from: a source's images in three splits, and fixed sets of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capsjax.data.dataset import Dataset
from capsjax.data.sources import VALIDATION_SPLITS
from capsjax.data.splits import stratified_holdout
from capsjax.data.tasks.single import Moved
from capsjax.data.tasks.task import EvaluationSet, NumberedExamples, Recipe, Source, take

# Takes the names of a data set and of a split, and `fitting` for a folder whose images are made to
# fit: `capsjax.data.load` with its other options filled in.
Reader = Callable[..., Dataset]


class Splits(NamedTuple):
    """A source's images, split in three without overlap.

    Attributes:
      class_names: in the order of the labels.
      train: the training split without what is held out, or a fraction of that.
      validation: what is held out of the training split, or a split of its own.
      test: reads the test split.
      has_test: whether there is one.
    """

    class_names: tuple[str, ...]
    train: Source
    validation: Source
    test: Callable[[], Source]
    has_test: bool


def read_splits(
    source: str,
    validation_fraction: float,
    train_fraction: float,
    read: Reader,
    *,
    own_validation: bool = False,
) -> Splits:
    """The training split in two, the same for every seed of training, and the test split.

    Args:
      source: name of the set.
      validation_fraction: part of the training split that is held out, in [0, 1).
      train_fraction: part of the rest that is trained on, in (0, 1].
      read: reads a split; the test split only when it is asked for.
      own_validation: whether a validation split of the source takes the place of what would be
        held out. (The training split of other sources may contain it.)

    Raises:
      ValueError: a fraction is out of range or leaves nothing to train on; and what `read` raises.
    """
    if not 0 <= validation_fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1), got {validation_fraction}")
    if not 0 < train_fraction <= 1:
        raise ValueError(f"train_fraction must be in (0, 1], got {train_fraction}")
    dataset = read(source, "train")
    own = [split for split in VALIDATION_SPLITS if split in dataset.splits and own_validation]
    kept, held_out = np.arange(len(dataset.labels)), np.arange(0)
    if validation_fraction and not own:
        kept, held_out = stratified_holdout(dataset.labels, validation_fraction, seed=0)
    if train_fraction < 1:
        used, _ = stratified_holdout(dataset.labels[kept], 1 - train_fraction, seed=1)
        kept = kept[used]
    return Splits(
        dataset.class_names,
        take(dataset, kept),
        take(read(source, own[0])) if own else take(dataset, held_out),
        lambda: take(read(source, "test")),
        "test" in dataset.splits,
    )


@dataclass(frozen=True)
class Generated:
    """What these tasks have in common; each has its own defaults.

    Attributes:
      source: of the images, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      canvas: rows and columns.
      max_shift: of each object; pixels from the middle, either way along each axis.
      test_versions: examples per image in the test sets.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    canvas: int = 40
    max_shift: int = 6
    test_versions: int = 1
    seed: int = 0

    def splits(self, read: Reader) -> Splits:
        """The source's images; raises ValueError unless they fit on the canvas."""
        splits = read_splits(self.source, self.validation_fraction, self.train_fraction, read)
        check_canvas(splits.train, self.canvas, self.max_shift)
        return splits


def as_it_is(dataset: Dataset) -> EvaluationSet:
    """Every image of `dataset`, unchanged and in order."""
    return fixed_set(take(dataset), Moved(dataset.num_classes))


def fixed_set(source: Source, recipe: Recipe, versions: int = 1, seed: int = 0) -> EvaluationSet:
    """`versions` examples of every image in `source`; raises ValueError if `versions` < 1."""
    if versions < 1:
        raise ValueError(f"test_versions must be at least 1, got {versions}")
    return EvaluationSet(
        source, NumberedExamples(recipe, versions, seed), versions * len(source.labels)
    )


def check_canvas(source: Source, canvas: int, max_shift: int) -> None:
    """Raises ValueError unless images fit on the canvas and, shifted, stay partly on it."""
    height, width = source.images.shape[1:3]
    if canvas < max(height, width):
        raise ValueError(
            f"canvas: {canvas}×{canvas} is smaller than the images of {height}×{width}"
        )
    if not 0 <= max_shift < canvas:
        raise ValueError(f"max_shift must be in [0, {canvas}) on this canvas, got {max_shift}")
