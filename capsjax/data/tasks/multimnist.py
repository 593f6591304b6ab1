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
from capsjax.data.tasks.source_splits import Generated, Reader, Splits, fixed_set
from capsjax.data.tasks.task import EvaluationSet, NumberedExamples, Source, Task


@dataclass(frozen=True)
class MultiMNIST(Generated):
    """Two overlapping digits of different classes; right if both are the top two.

    Sabour et al. 2017, section 6.1; Gu et al. 2021, section 3.2; Lin et al. 2018.

    Attributes (beside `Generated`'s; `seed` is that of the training images too, with `versions`):
      versions: different training images per first digit (Gu et al., figure 3), 0 for no end; an
        epoch shows one of each digit, so as many epochs show them all.
    """

    canvas: int = 36
    max_shift: int = 4
    versions: int = 0

    def pairs(self, num_classes: int) -> Pairs:
        """The classes that may be seen together."""
        return all_pairs(num_classes)

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`; "shift_grid" are Lin et al.'s 81 images per pair of digits."""
        splits = _sorted_by_class(self.splits(read))
        if self.versions < 0:
            raise ValueError(f"versions must be ≥ 0, got {self.versions}")
        num_classes = len(splits.class_names)
        recipe = Overlaid(
            num_classes, self.canvas, self.max_shift, self.pairs(num_classes), seed=self.seed
        )
        grid = ShiftGrid(num_classes, self.canvas, self.max_shift)
        return Task(
            name=name,
            class_names=splits.class_names,
            train=splits.train,
            recipe=replace(recipe, versions=self.versions),
            versions=max(1, self.versions),
            validation=fixed_set(splits.validation, recipe, seed=self.seed),
            rule=top(2),
            multi_label=True,
            tests={
                "test": lambda: fixed_set(splits.test(), recipe, self.test_versions, self.seed),
                "shift_grid": lambda: EvaluationSet(
                    splits.test(), NumberedExamples(grid), grid.size
                ),
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
class DiverseMultiMNIST(Generated):
    """One digit or two overlapping ones; right if the predicted set equals the true set.

    Tsai et al. 2020, section 6 and appendix B.2.

    Attributes (beside `Generated`'s):
      single_probability: of an image of one digit.
      threshold: a class is predicted if its score exceeds it. The paper does not print it.
    """

    canvas: int = 36
    max_shift: int = 4
    single_probability: float = 1 / 6
    threshold: float = 0.5

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`."""
        splits = _sorted_by_class(self.splits(read))
        if not 0 <= self.single_probability <= 1:
            raise ValueError(f"single_probability must be in [0, 1], got {self.single_probability}")
        num_classes = len(splits.class_names)
        recipe = Overlaid(
            num_classes,
            self.canvas,
            self.max_shift,
            all_pairs(num_classes),
            single_probability=self.single_probability,
        )
        return Task(
            name=name,
            class_names=splits.class_names,
            train=splits.train,
            recipe=recipe,
            validation=fixed_set(splits.validation, recipe, seed=self.seed),
            rule=above(self.threshold),
            multi_label=True,
            tests={"test": lambda: fixed_set(splits.test(), recipe, self.test_versions, self.seed)},
        )


def _sorted_by_class(splits: Splits) -> Splits:
    """Sorted by class, as overlaying needs it.

    Raises:
      ValueError: there are no two classes, or one of them has no images in a part.
    """
    names = splits.class_names
    if len(names) < 2:
        raise ValueError(f"source: overlaying takes images of two classes, there is {len(names)}")

    def checked(source: Source, part: str) -> Source:
        missing = np.setdiff1d(np.arange(len(names)), source.labels)
        if missing.size and len(source.labels):
            raise ValueError(
                f"source: class {names[missing[0]]!r} has no images in the {part} part; overlaying "
                "takes some of every class: add images, or change validation_fraction"
            )
        return by_class(source)

    return splits._replace(
        train=checked(splits.train, "training"),
        validation=checked(splits.validation, "validation"),
        test=lambda: checked(splits.test(), "test"),
    )
