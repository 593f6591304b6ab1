"""Translated digits, and affine transformed ones to test on."""

from dataclasses import dataclass

from capsjax.data.accuracy import top
from capsjax.data.affine import AffineRanges
from capsjax.data.tasks.parts import Reader, check_canvas, fixed_set, parts_of
from capsjax.data.tasks.single import AffineTransformed, Moved
from capsjax.data.tasks.task import Task


@dataclass(frozen=True)
class Translated:
    """Digits at a random place on a larger canvas (Sabour et al. 2017, section 5.3).

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      canvas: rows and columns.
      max_shift: pixels from the middle, either way along each axis; the default is as far as a
        28×28 image fits whole.
      test_versions: examples per image in the test set.
      seed: of the evaluation sets.
    """

    source: str = "mnist"
    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    canvas: int = 40
    max_shift: int = 6
    test_versions: int = 1
    seed: int = 0

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`."""
        parts = parts_of(self.source, self.validation_fraction, self.train_fraction, read)
        check_canvas(parts.train, self.canvas, self.max_shift)
        recipe = Moved(len(parts.class_names), canvas=self.canvas, max_shift=self.max_shift)
        return Task(
            name=name,
            class_names=parts.class_names,
            train=parts.train,
            recipe=recipe,
            validation=fixed_set(parts.validation, recipe, seed=self.seed),
            rule=top(1),
            tests={"test": lambda: fixed_set(parts.test(), recipe, self.test_versions, self.seed)},
        )


@dataclass(frozen=True)
class AffNIST:
    """Trained on translated digits, tested on affine transformed ones, as affNIST has them.

    Sabour et al. 2017, section 5.3; Choi et al. 2019, section 4.1; Gu et al. 2021, section 3.1.
    The last gives other ranges: max_shear=1 (45°), max_translation=8, keep_ink=False.

    Attributes:
      source: of the digits, see `capsjax.data.load`.
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
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
    train_fraction: float = 1.0
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

    def build(self, name: str, read: Reader) -> Task:
        """The task, called `name`.

        "test_translated" are the test digits only translated, "test_centred" in the middle of the
        canvas, as they are.
        """
        parts = parts_of(self.source, self.validation_fraction, self.train_fraction, read)
        check_canvas(parts.train, self.canvas, self.max_shift)
        num_classes = len(parts.class_names)
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
            class_names=parts.class_names,
            train=parts.train,
            recipe=translated,
            validation=fixed_set(
                parts.validation, affine if self.affine_validation else translated, seed=self.seed
            ),
            rule=top(1),
            tests={
                "test": lambda: fixed_set(parts.test(), affine, self.test_versions, self.seed),
                "test_translated": lambda: fixed_set(parts.test(), translated, seed=self.seed),
                "test_centred": lambda: fixed_set(parts.test(), Moved(num_classes, self.canvas)),
            },
        )
