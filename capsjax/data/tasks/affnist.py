"""Translated digits, and affine transformed ones to test on."""

from dataclasses import dataclass, fields

from capsjax.data.accuracy import top
from capsjax.data.affine import AffineRanges
from capsjax.data.tasks.single import AffineTransformed, Moved
from capsjax.data.tasks.source_splits import Generated, Reader, fixed_set
from capsjax.data.tasks.task import Task


@dataclass(frozen=True)
class Translated(Generated):
    """Digits at a random place on a larger canvas (Sabour et al. 2017, section 5.2).

    The default shift is as far as a 28×28 image fits whole.
    """

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`."""
        splits = self.splits(read)
        recipe = Moved(len(splits.class_names), canvas=self.canvas, max_shift=self.max_shift)
        return Task(
            name=name,
            class_names=splits.class_names,
            train=splits.train,
            recipe=recipe,
            validation=fixed_set(splits.validation, recipe, seed=self.seed),
            rule=top(1),
            tests={"test": lambda: fixed_set(splits.test(), recipe, self.test_versions, self.seed)},
        )


@dataclass(frozen=True)
class AffNIST(AffineRanges, Generated):
    """Trained on translated digits, tested on affine transformed ones, as affNIST has them.

    Sabour et al. 2017, section 5.2; Choi et al. 2019, section 4.1; Gu et al. 2021, section 3.1.
    The last gives other ranges: max_shear=1 (45°), max_translation=8, keep_ink=False.

    Attributes (beside `Generated`'s, with the `max_shift` of training images, and those of
    `capsjax.data.affine.AffineRanges` for test images):
      affine_validation: whether the validation images are transformed like test images (Choi et
        al. choose by affNIST's validation set) and not like training images.
    """

    affine_validation: bool = False
    test_versions: int = 32

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`.

        "test_translated" are the test digits only translated, "test_centred" in the middle of the
        canvas, as they are.
        """
        splits = self.splits(read)
        num_classes = len(splits.class_names)
        translated = Moved(num_classes, canvas=self.canvas, max_shift=self.max_shift)
        ranges = AffineRanges(**{f.name: getattr(self, f.name) for f in fields(AffineRanges)})
        affine = AffineTransformed(num_classes, self.canvas, ranges)
        return Task(
            name=name,
            class_names=splits.class_names,
            train=splits.train,
            recipe=translated,
            validation=fixed_set(
                splits.validation, affine if self.affine_validation else translated, seed=self.seed
            ),
            rule=top(1),
            tests={
                "test": lambda: fixed_set(splits.test(), affine, self.test_versions, self.seed),
                "test_translated": lambda: fixed_set(splits.test(), translated, seed=self.seed),
                "test_centred": lambda: fixed_set(splits.test(), Moved(num_classes, self.canvas)),
            },
        )
