"""Classifying the images of a data set."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from capsjax.data.accuracy import top
from capsjax.data.images import AS_IT_IS, Fitting
from capsjax.data.tasks.single import Moved
from capsjax.data.tasks.source_splits import Reader, fixed_set, read_splits
from capsjax.data.tasks.task import Task


@dataclass(frozen=True)
class Classification:
    """The images of a data set; those to train on are shifted, flipped and rotated if asked for.

    Attributes:
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
      max_shift: pixels, either way along each axis (Sabour et al. 2017: 2 for MNIST; the same as
        padding by as many and cropping, Tsai et al. 2020: 4 for CIFAR).
      flip: mirror half of the images.
      max_rotation: degrees, either way.
    """

    validation_fraction: float = 0.1
    train_fraction: float = 1.0
    max_shift: int = 2
    flip: bool = False
    max_rotation: float = 0.0
    own_validation: ClassVar[bool] = False

    def build(self, name: str, read: Reader) -> Task:
        """The task on the source `name`."""
        splits = read_splits(
            name,
            self.validation_fraction,
            self.train_fraction,
            read,
            own_validation=self.own_validation,
        )
        if len(splits.class_names) < 2:
            raise ValueError(
                f"name: {name!r} has only the class {splits.class_names[0]!r}, expected two or "
                "more: in a folder, one subfolder of images for each class (PATH/CLASS/IMAGE)"
            )
        side = min(splits.train.images.shape[1:3])
        if not 0 <= self.max_shift < side:
            raise ValueError(
                f"max_shift must be in [0, {side}) for these images, got {self.max_shift}"
            )
        if not self.max_rotation >= 0:
            raise ValueError(f"max_rotation must be ≥ 0, got {self.max_rotation}")
        num_classes = len(splits.class_names)
        as_it_is = Moved(num_classes)
        return Task(
            name=name,
            class_names=splits.class_names,
            train=splits.train,
            recipe=replace(
                as_it_is, max_shift=self.max_shift, flip=self.flip, max_rotation=self.max_rotation
            ),
            validation=fixed_set(splits.validation, as_it_is),
            rule=top(1),
            tests={"test": lambda: fixed_set(splits.test(), as_it_is)} if splits.has_test else {},
        )


@dataclass(frozen=True)
class OwnImages(Classification):
    """The image files of a "folder:PATH", made to fit if they differ.

    With PATH/train beside PATH/val (or validation, or valid), that split is used for validation;
    `validation_fraction` is ignored.

    Attributes:
      size: height and width in pixels; 0 where all images have one size.
      channels: 1 (grey) or 3 (colour); 0 where all images are of one kind.
      fit: see `capsjax.data.images.Fitting`.
    """

    size: int = 0
    channels: int = 0
    fit: str = "pad"
    own_validation: ClassVar[bool] = True

    def build(self, name: str, read: Reader) -> Task:
        """The task on the folder `name`."""
        fitting = Fitting(self.size, self.size, self.channels, self.fit).check()
        return super().build(name, partial(read, fitting=fitting) if fitting != AS_IT_IS else read)
