"""Overlapping digits."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from capsjax._options import checked, not_negative
from capsjax.data.accuracy import above, top
from capsjax.data.tasks.overlaid import (
    Overlaid,
    Pairs,
    ShiftGrid,
    all_pairs,
    by_class,
    domain_pairs,
)
from capsjax.data.tasks.source_splits import OnCanvas, Reader, Splits
from capsjax.data.tasks.task import EvaluationSet, NumberedExamples, Source, Task


@dataclass(frozen=True)
class OverlaidDigits(OnCanvas):
    """What tasks of two overlapping digits have in common."""

    canvas: int = 36
    max_shift: int = 4

    def pairs(self, num_classes: int) -> Pairs:
        """Returns the classes that may be seen together."""
        return all_pairs(num_classes)

    def overlaid(self, splits: Splits) -> Overlaid:
        num_classes = len(splits.class_names)
        return Overlaid(num_classes, self.canvas, self.max_shift, self.pairs(num_classes))

    def splits(self, read: Reader) -> Splits:
        """Sorts the source's images by class, as overlaying needs them: some of every class."""
        splits = super().splits(read)
        names = splits.class_names
        if len(names) < 2:
            raise ValueError("source: overlaying takes images of two classes, there is 1")

        def whole(source: Source, part: str) -> Source:
            missing = np.setdiff1d(np.arange(len(names)), source.labels)
            if missing.size and len(source.labels):
                raise ValueError(
                    f"source: class {names[missing[0]]!r} has no images in the {part} part; "
                    "overlaying takes some of every class: add images, or change "
                    "validation_fraction"
                )
            return by_class(source)

        return splits._replace(
            train=whole(splits.train, "training"),
            validation=whole(splits.validation, "validation"),
            test=lambda: whole(splits.test(), "test"),
        )


@dataclass(frozen=True)
class MultiMNIST(OverlaidDigits):
    """Two overlapping digits of different classes; right if both are the top two.

    Sabour et al. 2017, section 6.1; Gu et al. 2021, section 3.2; Lin et al. 2018. With `versions`,
    `seed` is that of the training images too.

    Attributes:
      versions: different training images per first digit (Gu et al., figure 3), 0 for no end; an
        epoch shows one of each digit, so as many epochs show them all.
    """

    versions: int = not_negative(0)

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task `name`; "shift_grid" are Lin et al.'s 81 images per pair of digits."""
        splits = self.splits(read)
        recipe = replace(self.overlaid(splits), seed=self.seed)
        grid = ShiftGrid(recipe.num_classes, self.canvas, self.max_shift)
        task = splits.task(
            name,
            replace(recipe, versions=self.versions),
            recipe,
            {"test": (recipe, self.test_versions)},
            self.seed,
            rule=top(2),
            multi_label=True,
            versions=max(1, self.versions),
        )

        def shift_grid() -> EvaluationSet:
            return EvaluationSet(splits.test(), NumberedExamples(grid), grid.size)

        return replace(task, tests={**task.tests, "shift_grid": shift_grid})


class TransferA(MultiMNIST):
    """MultiMNIST with the pairs of digits of domain A; see `overlaid.domain_pairs`."""

    domain: ClassVar[str] = "A"

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

    domain: ClassVar[str] = "B"


@dataclass(frozen=True)
class DiverseMultiMNIST(OverlaidDigits):
    """One digit or two overlapping ones; right if the predicted set equals the true set.

    Tsai et al. 2020, section 6 and appendix B.2.

    Attributes:
      single_probability: of an image of one digit.
      threshold: a class is predicted if its score exceeds it. The paper does not print it.
    """

    single_probability: float = checked(1 / 6, lambda p: 0 <= p <= 1, "must be in [0, 1]")
    threshold: float = 0.5

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task, called `name`."""
        splits = self.splits(read)
        recipe = replace(self.overlaid(splits), single_probability=self.single_probability)
        tests = {"test": (recipe, self.test_versions)}
        rule = above(self.threshold)
        return splits.task(name, recipe, recipe, tests, self.seed, rule=rule, multi_label=True)
