"""Overlapping digits."""

from dataclasses import dataclass, replace

import numpy as np

from capsjax.data.accuracy import above, top
from capsjax.data.tasks.overlaid import (
    Overlaid,
    Pairs,
    ShiftGrid,
    all_pairs,
    by_class,
    domain_pairs,
)
from capsjax.data.tasks.parts import Parts, Reader, check_canvas, fixed_set, parts_of
from capsjax.data.tasks.task import Arrays, EvaluationSet, Task


@dataclass(frozen=True)
class MultiMNIST:
    """Two overlapping digits of different classes; right if both are the top two.

    Sabour et al. 2017, section 6.1; Gu et al. 2021, section 3.2; Lin et al. 2018.

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      canvas: rows and columns.
      max_shift: of each digit; pixels from the middle, either way along each axis.
      versions: different training images per first digit (Gu et al., figure 3), 0 for no end; an
        epoch shows one of each digit, so as many epochs show them all.
      test_versions: examples per first digit in the test set.
      seed: of the evaluation sets and, with `versions`, of the training images.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    canvas: int = 36
    max_shift: int = 4
    versions: int = 0
    test_versions: int = 1
    seed: int = 0

    def pairs(self, num_classes: int) -> Pairs:
        """The classes that may be seen together."""
        return all_pairs(num_classes)

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`; "shift_grid" are Lin et al.'s 81 images per pair of digits."""
        parts = _sorted_by_class(
            parts_of(self.source, self.validation_fraction, self.train_fraction, read)
        )
        check_canvas(parts.train, self.canvas, self.max_shift)
        if self.versions < 0:
            raise ValueError(f"versions must be ≥ 0, got {self.versions}")
        num_classes = len(parts.class_names)
        recipe = Overlaid(
            num_classes, self.canvas, self.max_shift, self.pairs(num_classes), seed=self.seed
        )
        grid = ShiftGrid(num_classes, self.canvas, self.max_shift)
        return Task(
            name=name,
            class_names=parts.class_names,
            train=parts.train,
            recipe=replace(recipe, versions=self.versions),
            versions=max(1, self.versions),
            validation=fixed_set(parts.validation, recipe, seed=self.seed),
            rule=top(2),
            multi_label=True,
            tests={
                "test": lambda: fixed_set(parts.test(), recipe, self.test_versions, self.seed),
                "shift_grid": lambda: EvaluationSet(parts.test(), grid, grid.size),
            },
        )


class TransferA(MultiMNIST):
    """MultiMNIST with the pairs of digits of domain A; see `overlaid.domain_pairs`."""

    domain = "A"

    def pairs(self, num_classes: int) -> Pairs:
        """Raises ValueError unless there are ten classes."""
        if num_classes != 10:
            raise ValueError(
                f"source: {self.source} has {num_classes} classes; the transfer domains are pairs "
                "of ten digits"
            )
        return domain_pairs(self.domain)


class TransferB(TransferA):
    """MultiMNIST with the pairs of digits of domain B."""

    domain = "B"


@dataclass(frozen=True)
class DiverseMultiMNIST:
    """One digit or two overlapping ones; right if the predicted set equals the true set.

    Tsai et al. 2020, section 6 and appendix B.2.

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      canvas: rows and columns.
      max_shift: of each digit; pixels from the middle, either way along each axis.
      single_probability: of an image of one digit.
      threshold: a class is predicted if its score exceeds it. The paper does not print it.
      test_versions: examples per first digit in the test set.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    canvas: int = 36
    max_shift: int = 4
    single_probability: float = 1 / 6
    threshold: float = 0.5
    test_versions: int = 1
    seed: int = 0

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`."""
        parts = _sorted_by_class(
            parts_of(self.source, self.validation_fraction, self.train_fraction, read)
        )
        check_canvas(parts.train, self.canvas, self.max_shift)
        if not 0 <= self.single_probability <= 1:
            raise ValueError(f"single_probability must be in [0, 1], got {self.single_probability}")
        num_classes = len(parts.class_names)
        recipe = Overlaid(
            num_classes,
            self.canvas,
            self.max_shift,
            all_pairs(num_classes),
            single_probability=self.single_probability,
        )
        return Task(
            name=name,
            class_names=parts.class_names,
            train=parts.train,
            recipe=recipe,
            validation=fixed_set(parts.validation, recipe, seed=self.seed),
            rule=above(self.threshold),
            multi_label=True,
            tests={"test": lambda: fixed_set(parts.test(), recipe, self.test_versions, self.seed)},
        )


def _sorted_by_class(parts: Parts) -> Parts:
    """Sorted by class, as overlaying needs it.

    Raises:
      ValueError: there are no two classes, or one of them has no images in a part.
    """
    names = parts.class_names
    if len(names) < 2:
        raise ValueError(f"source: overlaying takes images of two classes, there is {len(names)}")

    def checked(arrays: Arrays, part: str) -> Arrays:
        missing = np.setdiff1d(np.arange(len(names)), arrays.labels)
        if missing.size and len(arrays.labels):
            raise ValueError(
                f"source: class {names[missing[0]]!r} has no images in the {part} part; overlaying "
                "takes some of every class: add images, or change validation_fraction"
            )
        return by_class(arrays)

    return parts._replace(
        train=checked(parts.train, "training"),
        validation=checked(parts.validation, "validation"),
        test=lambda: checked(parts.test(), "test"),
    )
