"""The kinds of tasks: their options, checked, and how each is put together from a source.

An option's default is the value of the paper that the task comes from.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from capsjax.data.accuracy import above, top
from capsjax.data.affine import AffineRanges
from capsjax.data.dataset import Dataset
from capsjax.data.sources import load
from capsjax.data.splits import stratified_holdout
from capsjax.data.tasks.overlaid import (
    Overlaid,
    Pairs,
    ShiftGrid,
    all_pairs,
    by_class,
    domain_pairs,
)
from capsjax.data.tasks.single import AffineTransformed, Moved
from capsjax.data.tasks.task import Arrays, EvaluationSet, Recipe, Task, take

DataDir = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Classification:
    """A data set as it is; training images are shifted, flipped and rotated as asked for.

    Attributes:
      validation_fraction: part of the training split held out, stratified.
      max_shift: pixels, either way along each axis (Sabour et al. 2017: 2 for MNIST; the same as
        padding by so many and cropping, Tsai et al. 2020: 4 for CIFAR).
      flip: mirror half of the images.
      max_rotation: degrees, either way.
    """

    validation_fraction: float = 0.1
    max_shift: int = 2
    flip: bool = False
    max_rotation: float = 0.0

    def build(self, name: str, data_dir: DataDir) -> Task:
        """The task on the source `name`."""
        split = _split(name, self.validation_fraction, data_dir)
        side = min(split.train.images.shape[1:3])
        if not 0 <= self.max_shift < side:
            raise ValueError(
                f"max_shift must be in [0, {side}) for these images, got {self.max_shift}"
            )
        if not self.max_rotation >= 0:
            raise ValueError(f"max_rotation must be ≥ 0, got {self.max_rotation}")
        num_classes = len(split.class_names)
        as_it_is = Moved(num_classes)
        return Task(
            name=name,
            class_names=split.class_names,
            train=split.train,
            recipe=replace(
                as_it_is, max_shift=self.max_shift, flip=self.flip, max_rotation=self.max_rotation
            ),
            validation=_fixed(split.validation, as_it_is),
            rule=top(1),
            tests={"test": lambda: _fixed(split.test(), as_it_is)},
        )


@dataclass(frozen=True)
class Translated:
    """Digits at a random place on a larger canvas (Sabour et al. 2017, section 5.3).

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      canvas: rows and columns.
      max_shift: pixels from the middle, either way along each axis; the default is as far as a
        28×28 image fits whole.
      test_versions: examples per image in the test set.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    canvas: int = 40
    max_shift: int = 6
    test_versions: int = 1
    seed: int = 0

    def build(self, name: str, data_dir: DataDir) -> Task:
        """The task, called `name`."""
        split = _split(self.source, self.validation_fraction, data_dir)
        _check_canvas(split.train, self.canvas, self.max_shift)
        recipe = Moved(len(split.class_names), canvas=self.canvas, max_shift=self.max_shift)
        return Task(
            name=name,
            class_names=split.class_names,
            train=split.train,
            recipe=recipe,
            validation=_fixed(split.validation, recipe, seed=self.seed),
            rule=top(1),
            tests={"test": lambda: _fixed(split.test(), recipe, self.test_versions, self.seed)},
        )


@dataclass(frozen=True)
class AffNIST:
    """Trained on translated digits, tested on affine transformed ones, as affNIST has them.

    Sabour et al. 2017, section 5.3; Choi et al. 2019, section 4.1; Gu et al. 2021, section 3.1.
    The last gives other ranges: max_shear=1 (45°), max_translation=8, keep_ink=False.

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      canvas: rows and columns.
      max_shift: of training images; pixels from the middle, either way along each axis.
      max_rotation, max_shear, min_scale, max_scale, max_translation, keep_ink: of test images,
        see `capsjax.data.affine.AffineRanges`.
      affine_validation: whether the validation images are transformed like test images (Choi et
        al. choose by affNIST's validation set) and not like training images.
      test_versions: examples per image in the test sets.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    canvas: int = 40
    max_shift: int = 6
    max_rotation: float = 20.0
    max_shear: float = 0.2
    min_scale: float = 0.8
    max_scale: float = 1.2
    max_translation: float = 40.0
    keep_ink: bool = True
    affine_validation: bool = False
    test_versions: int = 32
    seed: int = 0

    def build(self, name: str, data_dir: DataDir) -> Task:
        """The task, called `name`; "test_translated" are the test digits only translated."""
        split = _split(self.source, self.validation_fraction, data_dir)
        _check_canvas(split.train, self.canvas, self.max_shift)
        num_classes = len(split.class_names)
        translated = Moved(num_classes, canvas=self.canvas, max_shift=self.max_shift)
        ranges = AffineRanges(
            max_rotation=self.max_rotation,
            max_shear=self.max_shear,
            min_scale=self.min_scale,
            max_scale=self.max_scale,
            max_translation=self.max_translation,
            keep_ink=self.keep_ink,
        )
        affine = AffineTransformed(num_classes, self.canvas, ranges)
        return Task(
            name=name,
            class_names=split.class_names,
            train=split.train,
            recipe=translated,
            validation=_fixed(
                split.validation, affine if self.affine_validation else translated, seed=self.seed
            ),
            rule=top(1),
            tests={
                "test": lambda: _fixed(split.test(), affine, self.test_versions, self.seed),
                "test_translated": lambda: _fixed(split.test(), translated, seed=self.seed),
            },
        )


@dataclass(frozen=True)
class MultiMNIST:
    """Two overlapping digits of different classes; right if both are the top two.

    Sabour et al. 2017, section 6.1; Gu et al. 2021, section 3.2; Lin et al. 2018.

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      canvas: rows and columns.
      max_shift: of each digit; pixels from the middle, either way along each axis.
      versions: different training images per first digit (Gu et al., figure 3), 0 for no end.
      test_versions: examples per first digit in the test set.
      seed: of the evaluation sets and, with `versions`, of the training images.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    canvas: int = 36
    max_shift: int = 4
    versions: int = 0
    test_versions: int = 1
    seed: int = 0

    def pairs(self, num_classes: int) -> Pairs:
        """The classes that may be seen together."""
        return all_pairs(num_classes)

    def build(self, name: str, data_dir: DataDir) -> Task:
        """The task, called `name`; "shift_grid" are Lin et al.'s 81 images per pair of digits."""
        split = _by_class(_split(self.source, self.validation_fraction, data_dir))
        _check_canvas(split.train, self.canvas, self.max_shift)
        if self.versions < 0:
            raise ValueError(f"versions must be ≥ 0, got {self.versions}")
        num_classes = len(split.class_names)
        recipe = Overlaid(
            num_classes, self.canvas, self.max_shift, self.pairs(num_classes), seed=self.seed
        )
        grid = ShiftGrid(num_classes, self.canvas, self.max_shift)
        return Task(
            name=name,
            class_names=split.class_names,
            train=split.train,
            recipe=replace(recipe, versions=self.versions),
            validation=_fixed(split.validation, recipe, seed=self.seed),
            rule=top(2),
            multi_label=True,
            tests={
                "test": lambda: _fixed(split.test(), recipe, self.test_versions, self.seed),
                "shift_grid": lambda: EvaluationSet(split.test(), grid, grid.size),
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
      canvas: rows and columns.
      max_shift: of each digit; pixels from the middle, either way along each axis.
      single_probability: of an image of one digit.
      threshold: a class is predicted if its score exceeds it. The paper does not print it.
      test_versions: examples per first digit in the test set.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    canvas: int = 36
    max_shift: int = 4
    single_probability: float = 1 / 6
    threshold: float = 0.5
    test_versions: int = 1
    seed: int = 0

    def build(self, name: str, data_dir: DataDir) -> Task:
        """The task, called `name`."""
        split = _by_class(_split(self.source, self.validation_fraction, data_dir))
        _check_canvas(split.train, self.canvas, self.max_shift)
        if not 0 <= self.single_probability <= 1:
            raise ValueError(f"single_probability must be in [0, 1], got {self.single_probability}")
        num_classes = len(split.class_names)
        recipe = Overlaid(
            num_classes,
            self.canvas,
            self.max_shift,
            all_pairs(num_classes),
            single_probability=self.single_probability,
        )
        return Task(
            name=name,
            class_names=split.class_names,
            train=split.train,
            recipe=recipe,
            validation=_fixed(split.validation, recipe, seed=self.seed),
            rule=above(self.threshold),
            multi_label=True,
            tests={"test": lambda: _fixed(split.test(), recipe, self.test_versions, self.seed)},
        )


class _Split(NamedTuple):
    class_names: tuple[str, ...]
    train: Arrays
    validation: Arrays
    test: Callable[[], Arrays]


def _split(source: str, validation_fraction: float, data_dir: DataDir) -> _Split:
    """The source's training split in two, the same for every seed of training, and its test split.

    The test split is not touched before it is asked for.
    """
    if not 0 <= validation_fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1), got {validation_fraction}")
    dataset = load(source, "train", data_dir)
    kept, held_out = np.arange(len(dataset.labels)), np.arange(0)
    if validation_fraction:
        kept, held_out = stratified_holdout(dataset.labels, validation_fraction, seed=0)
    return _Split(
        dataset.class_names,
        take(dataset, kept),
        take(dataset, held_out),
        lambda: take(load(source, "test", data_dir)),
    )


def _by_class(split: _Split) -> _Split:
    """Sorted by class, as overlaying needs it.

    Raises:
      ValueError: there are no two classes, or one of them has no images in a part.
    """
    names = split.class_names
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

    return split._replace(
        train=checked(split.train, "training"),
        validation=checked(split.validation, "validation"),
        test=lambda: checked(split.test(), "test"),
    )


def as_it_is(dataset: Dataset) -> EvaluationSet:
    """Every image of `dataset`, unchanged and in order."""
    return _fixed(take(dataset), Moved(dataset.num_classes))


def _fixed(arrays: Arrays, recipe: Recipe, versions: int = 1, seed: int = 0) -> EvaluationSet:
    if versions < 1:
        raise ValueError(f"test_versions must be at least 1, got {versions}")
    return EvaluationSet(arrays, recipe, versions * len(arrays.labels), versions, seed)


def _check_canvas(arrays: Arrays, canvas: int, max_shift: int) -> None:
    height, width = arrays.images.shape[1:3]
    if canvas < max(height, width):
        raise ValueError(
            f"canvas: {canvas}×{canvas} is smaller than the images of {height}×{width}"
        )
    if not 0 <= max_shift < canvas:
        raise ValueError(f"max_shift must be in [0, {canvas}) on this canvas, got {max_shift}")
