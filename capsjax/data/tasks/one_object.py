"""Tasks of one object per image, and their recipes."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from capsjax._options import decay, not_negative, one_of, positive
from capsjax.data.accuracy import top
from capsjax.data.affine import (
    AffineParameters,
    AffineRanges,
    affine_matrix,
    ink_translations,
    random_affine,
    transform,
)
from capsjax.data.dataset import Dataset
from capsjax.data.images import AS_IT_IS, Fitting, channels_option
from capsjax.data.tasks import task
from capsjax.data.transforms import erase, flip, pad, random_offset, translate
from capsjax.functional import to_unit

Image = UInt8[Array, "1 h w c"]
Label = Int[Array, "1"]


class Moves(NamedTuple):
    """How one image is moved."""

    offset: Int[Array, "2"]  # rows down, columns to the right
    flipped: Bool[Array, ""]  # left for right
    rotation: Float[Array, ""]  # in degrees, counter-clockwise


@dataclass(frozen=True)
class Moved(task.Recipe):
    """A source image on a canvas, shifted, perhaps flipped and rotated; see `Classification`."""

    max_shift: int = 0
    flip: bool = False
    max_rotation: float = 0.0

    def draw(self, key: PRNGKeyArray, index: task.Index, images: Image) -> Moves:
        offset_key, flip_key, rotation_key = jax.random.split(key, 3)
        low, high = -self.max_rotation, self.max_rotation
        rotation = jax.random.uniform(rotation_key, (), jnp.float32, low, high)
        flipped = jax.random.bernoulli(flip_key) & self.flip
        return Moves(random_offset(offset_key, self.max_shift), flipped, rotation)

    def render(self, images: Image, labels: Label, parameters: Moves) -> task.Example:
        (source,) = images
        size = self.image_shape(source.shape)[:2]
        if self.max_rotation:
            mirror = jnp.where(parameters.flipped, -1.0, 1.0)
            matrix = affine_matrix(parameters.rotation) * jnp.stack([jnp.ones(()), mirror])
            image = transform(source, matrix, parameters.offset.astype(jnp.float32), size)
        else:
            # Whole pixels need no resampling.
            canvas = pad(source, size)
            canvas = flip(canvas, parameters.flipped) if self.flip else canvas
            image = to_unit(translate(canvas, parameters.offset, self.max_shift))
        return _one_object(image, labels, self.num_classes)


class Transformed(NamedTuple):
    affine: AffineParameters


@dataclass(frozen=True)
class AffineTransformed(task.Recipe):
    """A source image on a canvas under a random affine transformation, drawn from `ranges`."""

    ranges: AffineRanges = field(default_factory=AffineRanges)

    def draw(self, key: PRNGKeyArray, index: task.Index, images: Image) -> Transformed:
        return Transformed(random_affine(key, images[0], (self.canvas, self.canvas), self.ranges))

    def render(self, images: Image, labels: Label, parameters: Transformed) -> task.Example:
        affine, size = parameters.affine, (self.canvas, self.canvas)
        image = transform(images[0], affine.matrix, affine.translation, size)
        return _one_object(image, labels, self.num_classes)


class Distortions(NamedTuple):
    rotation: Float[Array, ""]  # in degrees, counter-clockwise
    translation: Float[Array, "2"]  # rows down, columns to the right, after the rotation
    squeeze: Float[Array, ""]  # the part by which the image gets narrower, last
    corner: Int[Array, "2"]  # the top left pixel of the square that is erased


@dataclass(frozen=True)
class Distorted(task.Recipe):
    """A source image turned, shifted and squeezed in one resampling, and with a square erased.

    Mazzia et al. 2021, much as the released code draws them: each amount is |z| times its maximum,
    z normal with standard deviation 0.33, clipped to ±1. Half of the images are turned. A shift
    goes to a random side, in whole pixels; its maximum is the margin between the ink and that side.
    """

    max_rotation: float = 0.0
    max_squeeze: float = 0.0
    erased: int = 0

    def draw(self, key: PRNGKeyArray, index: task.Index, images: Image) -> Distortions:
        normal_key, turned_key, side_key, corner_key = jax.random.split(key, 4)
        turn, down, right, squeeze = jnp.clip(0.33 * jax.random.normal(normal_key, (4,)), -1, 1)
        rotation = self.max_rotation * turn * jax.random.bernoulli(turned_key)
        size = (images.shape[1], images.shape[2])
        least, greatest = ink_translations(images[0], affine_matrix(rotation), size)
        towards_end = jax.random.bernoulli(side_key, shape=(2,))
        margins = jnp.where(towards_end, jnp.maximum(greatest, 0), jnp.minimum(least, 0))
        # The erased square is at least its own size away from every edge.
        first, last = self.erased, jnp.asarray(size) - 2 * self.erased
        return Distortions(
            rotation=rotation,
            translation=jnp.trunc(jnp.abs(jnp.stack([down, right])) * margins),
            squeeze=self.max_squeeze * jnp.abs(squeeze),
            corner=jax.random.randint(corner_key, (2,), first, jnp.maximum(last, first) + 1),
        )

    def render(self, images: Image, labels: Label, parameters: Distortions) -> task.Example:
        (source,) = images
        rotation, translation, squeeze, corner = parameters
        scale = jnp.stack([jnp.ones_like(squeeze), 1 - squeeze])
        matrix = affine_matrix(rotation) * scale[:, None]
        image = transform(source, matrix, translation * scale, source.shape[:2])
        return _one_object(erase(image, corner, self.erased), labels, self.num_classes)


def _one_object(image: Float[Array, "h w c"], label: Label, num_classes: int) -> task.Example:
    one_hot = jax.nn.one_hot(label[0], num_classes)
    return task.Example(image, one_hot, task.Objects(image[None], one_hot[None]))


def as_it_is(dataset: Dataset) -> task.EvaluationSet:
    """Returns every image of `dataset`, unchanged and in order."""
    return task.fixed_set(task.take(dataset), Moved(dataset.num_classes))


@dataclass(frozen=True)
class Classification(task.Family):
    """The images of a data set; those to train on are shifted, flipped and rotated if asked for.

    Attributes:
      max_shift: pixels, either way along each axis (Sabour et al. 2017: 2 for MNIST; like padding
        by that many and cropping, Tsai et al. 2020: 4 for CIFAR).
      flip: mirror half of the images.
      max_rotation: degrees, either way.
    """

    max_shift: int = not_negative(2)
    flip: bool = False
    max_rotation: float = not_negative(0.0)

    def build(self, name: str, read: task.Reader) -> task.Task:
        splits = self.read(name, read)
        if len(splits.class_names) < 2:
            raise ValueError(
                f"name: {name!r} has only the class {splits.class_names[0]!r}, expected two or "
                "more: in a folder, one subfolder of images for each class (PATH/CLASS/IMAGE)"
            )
        side = min(splits.train.images.shape[1:3])
        if self.max_shift >= side:
            raise ValueError(f"max_shift must be in [0, {side}) here, got {self.max_shift}")
        still = Moved(len(splits.class_names))
        moved = Moved(still.num_classes, 0, self.max_shift, self.flip, self.max_rotation)
        tests = {"test": partial(task.fixed_set, recipe=still)}
        return splits.task(name, moved, still, tests, rule=top(1))


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

    def build(self, name: str, read: task.Reader) -> task.Task:
        fitting = Fitting(self.size, self.size, self.channels, self.fit)
        return super().build(name, partial(read, fitting=fitting) if fitting != AS_IT_IS else read)


@dataclass(frozen=True)
class DistortedTask(task.FromSource):
    """The images of a data set, distorted in training and as they are in evaluation.

    Attributes:
      max_rotation: degrees, either way.
      max_squeeze: of the width.
      erased: rows and columns of the square that is erased; 0 for none.
    """

    max_rotation: float = not_negative(30.0)
    max_squeeze: float = decay(0.25)
    erased: int = 4

    def build(self, name: str, read: task.Reader) -> task.Task:
        splits = self.read(self.source, read)
        side = min(splits.train.images.shape[1:3])
        if not 0 <= 3 * self.erased <= side:
            raise ValueError(f"erased must be in [0, {side // 3}] here, got {self.erased}")
        still = Moved(len(splits.class_names))
        amounts = self.max_rotation, self.max_squeeze, self.erased
        distorted = Distorted(still.num_classes, 0, *amounts)
        tests = {"test": partial(task.fixed_set, recipe=still)}
        return splits.task(name, distorted, still, tests, rule=top(1))


@dataclass(frozen=True)
class Translated(task.OnCanvas):
    """Digits at a random place on a larger canvas (Sabour et al. 2017, section 5.2)."""

    def build(self, name: str, read: task.Reader) -> task.Task:
        splits = self.splits(read)
        moved = Moved(len(splits.class_names), self.canvas, self.max_shift)
        tests = {"test": partial(self.test_set, recipe=moved)}
        return splits.task(name, moved, moved, tests, seed=self.seed, rule=top(1))


@dataclass(frozen=True)
class AffNIST(AffineRanges, task.OnCanvas):
    """Trained on translated digits, tested on affine transformed ones, as affNIST has them.

    Sabour et al. 2017, section 5.2; Choi et al. 2019, section 4.1; Gu et al. 2021, section 3.1.
    The last gives other ranges: max_shear=1 (45°), max_translation=8, keep_ink=False. `max_shift`
    is that of training images, the ranges of `AffineRanges` are those of test images.

    Attributes:
      affine_validation: whether the validation images are transformed like test images (Choi et
        al. choose by affNIST's validation set) and not like training images.
    """

    affine_validation: bool = False
    test_versions: int = positive(32)

    def build(self, name: str, read: task.Reader) -> task.Task:
        """Adds "test_translated", the test digits only translated, and "test_centred"."""
        splits = self.splits(read)
        centred = Moved(len(splits.class_names), self.canvas)
        moved = replace(centred, max_shift=self.max_shift)
        affine = AffineTransformed(centred.num_classes, self.canvas, self)
        tests = {
            "test": partial(self.test_set, recipe=affine),
            "test_translated": partial(task.fixed_set, recipe=moved, seed=self.seed),
            "test_centred": partial(task.fixed_set, recipe=centred, seed=self.seed),
        }
        validation = affine if self.affine_validation else moved
        return splits.task(name, moved, validation, tests, seed=self.seed, rule=top(1))
