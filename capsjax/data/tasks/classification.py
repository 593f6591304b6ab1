"""Classifying the images of a data set."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from capsjax._options import not_negative, one_of
from capsjax.data.accuracy import top
from capsjax.data.images import AS_IT_IS, Fitting, channels_option
from capsjax.data.tasks.single import Moved
from capsjax.data.tasks.source_splits import Family, Reader
from capsjax.data.tasks.task import Task


@dataclass(frozen=True)
class Classification(Family):
    """The images of a data set; those to train on are shifted, flipped and rotated if asked for.

    Attributes:
      max_shift: pixels, either way along each axis (Sabour et al. 2017: 2 for MNIST; the same as
        padding by as many and cropping, Tsai et al. 2020: 4 for CIFAR).
      flip: mirror half of the images.
      max_rotation: degrees, either way.
    """

    max_shift: int = not_negative(2)
    flip: bool = False
    max_rotation: float = not_negative(0.0)

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task on the source `name`."""
        splits = self.read(name, read)
        if len(splits.class_names) < 2:
            raise ValueError(
                f"name: {name!r} has only the class {splits.class_names[0]!r}, expected two or "
                "more: in a folder, one subfolder of images for each class (PATH/CLASS/IMAGE)"
            )
        side = min(splits.train.images.shape[1:3])
        if self.max_shift >= side:
            raise ValueError(
                f"max_shift must be in [0, {side}) for these images, got {self.max_shift}"
            )
        as_it_is = Moved(len(splits.class_names))
        moved = replace(
            as_it_is, max_shift=self.max_shift, flip=self.flip, max_rotation=self.max_rotation
        )
        tests = {"test": (as_it_is, 1)} if splits.has_test else {}
        return splits.task(name, moved, as_it_is, tests, rule=top(1))


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

    size: int = not_negative(0)
    channels: int = channels_option()
    fit: str = one_of("pad", "crop")
    own_validation: ClassVar[bool] = True

    def build(self, name: str, read: Reader) -> Task:
        """Builds the task on the folder `name`."""
        fitting = Fitting(self.size, self.size, self.channels, self.fit)
        return super().build(name, partial(read, fitting=fitting) if fitting != AS_IT_IS else read)
