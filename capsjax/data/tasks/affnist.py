"""Translated digits, and affine transformed ones to test on."""

from dataclasses import dataclass

from capsjax.data.accuracy import top
from capsjax.data.affine import AffineRanges
from capsjax.data.tasks.generated import Generated
from capsjax.data.tasks.single import AffineTransformed, Moved
from capsjax.data.tasks.source_splits import Reader, fixed_set
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
class AffNIST(Generated):
    """Trained on translated digits, tested on affine transformed ones, as affNIST has them.

    Sabour et al. 2017, section 5.2; Choi et al. 2019, section 4.1; Gu et al. 2021, section 3.1.
    The last gives other ranges: max_shear=1 (45°), max_translation=8, keep_ink=False.

    Attributes (beside `Generated`'s; `max_shift` is that of training images):
      max_rotation, max_shear, min_scale, max_scale, max_translation, keep_ink: of test images,
        see `capsjax.data.affine.AffineRanges`.
      affine_validation: whether the validation images are transformed like test images (Choi et
        al. choose by affNIST's validation set) and not like training images.
    """

    max_rotation: float = 20.0
    max_shear: float = 0.2
    min_scale: float = 0.8
    max_scale: float = 1.2
    max_translation: float = 40.0
    keep_ink: bool = True
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
