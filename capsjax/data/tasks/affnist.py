"""Translated digits, and affine transformed ones to test on."""

from dataclasses import dataclass, fields

from capsjax.data.accuracy import top
from capsjax.data.affine import AffineRanges
from capsjax.data.tasks.single import AffineTransformed, Moved
from capsjax.data.tasks.source_splits import OnCanvas, Reader
from capsjax.data.tasks.task import Recipe, Task


@dataclass(frozen=True)
class Translated(OnCanvas):
    """Digits at a random place on a larger canvas (Sabour et al. 2017, section 5.2).

    The default shift is as far as a 28×28 image fits whole.
    """

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task, called `name`."""
        splits = self.splits(read)
        moved = Moved(len(splits.class_names), self.canvas, self.max_shift)
        tests = {"test": (moved, self.test_versions)}
        return splits.task(name, moved, moved, tests, self.seed, rule=top(1))


@dataclass(frozen=True)
class AffNIST(AffineRanges, OnCanvas):
    """Trained on translated digits, tested on affine transformed ones, as affNIST has them.

    Sabour et al. 2017, section 5.2; Choi et al. 2019, section 4.1; Gu et al. 2021, section 3.1.
    The last gives other ranges: max_shear=1 (45°), max_translation=8, keep_ink=False. `max_shift`
    is that of training images; the ranges of `capsjax.data.affine.AffineRanges` are those of test
    images.

    Attributes:
      affine_validation: whether the validation images are transformed like test images (Choi et
        al. choose by affNIST's validation set) and not like training images.
    """

    affine_validation: bool = False
    test_versions: int = 32

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task, called `name`.

        "test_translated" are the test digits only translated, "test_centred" in the middle of the
        canvas, as they are.
        """
        splits = self.splits(read)
        num_classes = len(splits.class_names)
        moved = Moved(num_classes, self.canvas, self.max_shift)
        ranges = AffineRanges(**{f.name: getattr(self, f.name) for f in fields(AffineRanges)})
        affine = AffineTransformed(num_classes, self.canvas, ranges)
        tests: dict[str, tuple[Recipe, int]] = {
            "test": (affine, self.test_versions),
            "test_translated": (moved, 1),
            "test_centred": (Moved(num_classes, self.canvas), 1),
        }
        validation = affine if self.affine_validation else moved
        return splits.task(name, moved, validation, tests, self.seed, rule=top(1))
