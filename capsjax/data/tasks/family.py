"""What tasks are built from: a source's images in three splits, and options for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from capsjax._options import Options, decay, fraction
from capsjax.data.dataset import Dataset
from capsjax.data.sources import VALIDATION_SPLITS
from capsjax.data.splits import stratified_holdout
from capsjax.data.tasks.task import EvaluationSet, Recipe, Source, Task, fixed_set, take

# Takes the names of a data set and of a split, and `fitting` for a folder whose images are made to
# fit: `capsjax.data.load` with its other options filled in.
Reader = Callable[..., Dataset]


class Splits(NamedTuple):
    """A source's images, split in three without overlap; `test` reads the test split."""

    class_names: tuple[str, ...]
    train: Source
    validation: Source
    test: Callable[[], Source]
    has_test: bool

    def task(
        self,
        name: str,
        train: Recipe,
        validation: Recipe,
        tests: Mapping[str, Callable[[Source], EvaluationSet]],
        *,
        seed: int = 0,
        **options: Any,
    ) -> Task:
        """Makes a task with these recipes of training and validation, and options of `Task`.

        `tests` make evaluation sets of the test images; `seed` is that of the validation set.
        """

        def loaded(make: Callable[[Source], EvaluationSet]) -> EvaluationSet:
            return make(self.test())

        return Task(
            name=name,
            class_names=self.class_names,
            train=self.train,
            recipe=train,
            validation=fixed_set(self.validation, validation, seed=seed),
            tests={test: partial(loaded, make) for test, make in tests.items()},
            **options,
        )


@dataclass(frozen=True)
class Family(Options):
    """The base class of tasks that differ in their options alone; each has its own defaults.

    Attributes:
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
    """

    validation_fraction: float = decay(0.1)
    train_fraction: float = fraction(1.0)
    # Whether a validation split of the source takes the place of what would be held out. (The
    # training split of other sources than a user's may contain it.)
    own_validation: ClassVar[bool] = False

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task, called `name`."""
        raise NotImplementedError

    def read(self, source: str, read: Reader) -> Splits:
        """Splits the training set in two, alike for all seeds of training; reads the test split."""
        dataset = read(source, "train")
        own = [s for s in VALIDATION_SPLITS if s in dataset.splits and self.own_validation]
        kept, held_out = np.arange(len(dataset.labels)), np.arange(0)
        if not own:
            kept, held_out = stratified_holdout(dataset.labels, self.validation_fraction, seed=0)
        if self.train_fraction < 1:
            used, _ = stratified_holdout(dataset.labels[kept], 1 - self.train_fraction, seed=1)
            kept = kept[used]
        return Splits(
            dataset.class_names,
            take(dataset, kept),
            take(read(source, own[0])) if own else take(dataset, held_out),
            lambda: take(read(source, "test")),
            "test" in dataset.splits,
        )


@dataclass(frozen=True)
class FromSource(Family):
    """The base class of tasks whose images are made from another set's.

    Attributes:
      source: of the images, see `capsjax.data.load`.
    """

    source: str = "mnist"


@dataclass(frozen=True)
class OnCanvas(FromSource):
    """Tasks whose images are moved on a canvas.

    Attributes:
      canvas: rows and columns.
      max_shift: of each object; pixels from the middle, either way along each axis.
      test_versions: examples per image in the test sets.
      seed: of the evaluation sets.
    """

    canvas: int = 40
    max_shift: int = 6
    test_versions: int = 1
    seed: int = 0

    def splits(self, read: Reader) -> Splits:
        """Returns the source's images; raises ValueError unless they fit on the canvas."""
        splits = self.read(self.source, read)
        height, width = splits.train.images.shape[1:3]
        if self.canvas < max(height, width):
            raise ValueError(
                f"canvas: {self.canvas}×{self.canvas} is smaller than the images of "
                f"{height}×{width}"
            )
        if not 0 <= self.max_shift < self.canvas:
            raise ValueError(
                f"max_shift must be in [0, {self.canvas}) on this canvas, got {self.max_shift}"
            )
        return splits

    def test_set(self, source: Source, recipe: Recipe) -> EvaluationSet:
        """Returns as many versions of every image in `source` as the options ask for."""
        return fixed_set(source, recipe, self.test_versions, self.seed)
