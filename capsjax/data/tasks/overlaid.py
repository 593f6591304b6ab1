"""Tasks of two overlapping objects per image, and their recipes.

Recipes need source images that are sorted by label: then the images of a class are a range, and two
random numbers choose a partner, its class and its place in that range.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, UInt8

from capsjax._options import checked, not_negative
from capsjax.data.accuracy import above, top
from capsjax.data.tasks import task
from capsjax.data.transforms import overlay, pad, random_offset, translate
from capsjax.functional import to_unit

Images = UInt8[Array, "2 h w c"]
ClassLabels = Int[Array, "2"]


class Placements(NamedTuple):
    """Two images on one canvas."""

    offsets: Int[Array, "2 2"]  # rows down and columns to the right, from the middle of the canvas
    present: Bool[Array, "2"]  # which of them are there


@dataclass(frozen=True)
class _TwoObjects(task.Recipe):
    max_shift: int = 0  # pixels from the middle, either way along each axis

    def render(self, images: Images, labels: ClassLabels, parameters: Placements) -> task.Example:
        offsets, present = parameters

        def alone(image, offset):
            canvas = pad(image, (self.canvas, self.canvas))
            return to_unit(translate(canvas, offset, self.max_shift))

        images = jax.vmap(alone)(images, offsets) * present[:, None, None, None]
        labels = jax.nn.one_hot(labels, self.num_classes) * present[:, None]
        return task.Example(overlay(images), jnp.sum(labels, axis=0), task.Objects(images, labels))


@dataclass(frozen=True)
class Overlaid(_TwoObjects):
    """An object and, except with `single_probability`, another of a different class on top.

    MultiMNIST: Sabour et al. 2017, section 6.1; with `single_probability` 1/6 DiverseMultiMNIST:
    Tsai et al. 2020, section 6 and appendix B.2. The first object is the image at `index`, so an
    epoch goes through all images; the second's class is uniform among the others, or those paired
    with the first in the `domain`, and its image is uniform in that class.

    The transfer domains are from Lin et al. 2018, section 3.3. The paper asks for two disjoint sets
    of pairs of digits that each cover all ten, and prints seven: (1, 2), (3, 4), (7, 9) and (1, 8)
    of A; (2, 3), (4, 1) and, only tested, (7, 8) of B. Here a pair belongs to A if the last digit
    of its sum is 3 or at least 6, and otherwise to B. This agrees with those seven and gives 23 and
    22 pairs, in which each digit has 4 or 5 partners.
    """

    domain: str = ""  # "A" or "B"; "" for all pairs of two different classes
    single_probability: float = 0.0  # of an image with one object only
    # If positive, index v · n + i is version v of first object i of n. It depends on `seed` and the
    # index alone: keys are ignored.
    versions: int = 0
    seed: int = 0

    def choose(self, key: PRNGKeyArray, labels: task.Labels, index: task.Index) -> task.Chosen:
        class_key, image_key, _, _ = self._keys(key, index)
        index = index % len(labels)
        partners, counts = self._partners()
        labels = jnp.asarray(labels)  # NumPy's cannot be indexed by traced numbers
        first_class = labels[index]
        choice = jax.random.randint(class_key, (), 0, counts[first_class])
        start, stop = class_range(labels, partners[first_class, choice])
        return jnp.stack([index, jax.random.randint(image_key, (), start, stop)])

    def draw(self, key: PRNGKeyArray, index: task.Index, images: Images) -> Placements:
        _, _, offset_key, single_key = self._keys(key, index)
        offsets = jax.vmap(partial(random_offset, max_shift=self.max_shift))
        second = ~jax.random.bernoulli(single_key, self.single_probability)
        present = jnp.stack([jnp.array(True), second])
        return Placements(offsets(jax.random.split(offset_key)), present)

    def _keys(self, key: PRNGKeyArray, index: task.Index) -> Key[Array, "4"]:
        # For the second object's class and image, the offsets and the number.
        if self.versions:
            key = jax.random.fold_in(jax.random.key(self.seed), index)
        return jax.random.split(key, 4)

    def _partners(self) -> tuple[Array, Array]:
        """Returns, for each class, its partners (padded) and their number."""
        paired = ~np.eye(self.num_classes, dtype=bool)
        if self.domain:
            last_digits = np.add.outer(np.arange(10), np.arange(10)) % 10
            paired &= ((last_digits == 3) | (last_digits >= 6)) == (self.domain == "A")
        counts = paired.sum(axis=1)
        partners = np.argsort(~paired, axis=1, kind="stable")[:, : counts.max()]
        return jnp.asarray(partners, jnp.int32), jnp.asarray(counts, jnp.int32)


@dataclass(frozen=True)
class ShiftGrid(_TwoObjects):
    """One object fixed in the middle and one moving over a grid (Lin et al. 2018, section 3.2).

    Example i has offset i mod n² of the grid, row by row, and ordered pair of classes i div n²
    (n = 2 max_shift + 1): first all with class 0 fixed, the moving class counted up, then all with
    class 1 fixed, and so on. Each class is represented by the first of its images.
    """

    @property
    def size(self) -> int:
        return self.num_classes * (self.num_classes - 1) * self.per_pair

    @property
    def per_pair(self) -> int:
        return (2 * self.max_shift + 1) ** 2  # 81 in the paper

    def first_of(self, fixed: int, moving: int) -> int:
        """Returns the first example of a pair of classes; `per_pair` belong to it."""
        pair = fixed * (self.num_classes - 1) + moving - (moving > fixed)
        return pair * self.per_pair

    def choose(self, key: PRNGKeyArray, labels: task.Labels, index: task.Index) -> task.Chosen:
        fixed, moving = jnp.divmod(index // self.per_pair, self.num_classes - 1)
        moving += moving >= fixed
        return jnp.stack([class_range(labels, label)[0] for label in (fixed, moving)])

    def draw(self, key: PRNGKeyArray, index: task.Index, images: Images) -> Placements:
        place = index % self.per_pair
        offset = jnp.stack(jnp.divmod(place, 2 * self.max_shift + 1)) - self.max_shift
        return Placements(jnp.stack([jnp.zeros_like(offset), offset]), jnp.ones(2, bool))


def class_range(labels: Int[Array, "n"], label: task.Index) -> tuple[task.Index, task.Index]:
    """Returns where the images of a class begin and end among sorted `labels`."""
    return jnp.searchsorted(labels, label), jnp.searchsorted(labels, label, side="right")


@dataclass(frozen=True)
class OverlaidDigits(task.OnCanvas):
    """Tasks of two overlapping digits."""

    canvas: int = 36
    max_shift: int = 4

    def splits(self, read: task.Reader) -> task.Splits:
        """Sorts the source's images by class; raises ValueError if a class has none."""
        splits = super().splits(read)
        names = splits.class_names
        if len(names) < 2:
            raise ValueError("source: overlaying takes images of two classes, there is 1")

        def by_class(source: task.Source, part: str) -> task.Source:
            missing = np.setdiff1d(np.arange(len(names)), source.labels)
            if missing.size and len(source.labels):
                raise ValueError(f"source: {names[missing[0]]!r} has no images in the {part} part")
            return task.take(source, np.argsort(source.labels, kind="stable"))

        return splits._replace(
            train=by_class(splits.train, "training"),
            validation=by_class(splits.validation, "validation"),
            test=lambda: by_class(splits.test(), "test"),
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
    domain: ClassVar[str] = ""

    def build(self, name: str, read: task.Reader) -> task.Task:
        """Builds the task `name`; "shift_grid" are Lin et al.'s 81 images per pair of digits."""
        splits = self.splits(read)
        sizes = len(splits.class_names), self.canvas, self.max_shift
        if self.domain and sizes[0] != 10:
            raise ValueError(f"source: domains are pairs of ten digits, there are {sizes[0]}")
        grid, recipe = ShiftGrid(*sizes), Overlaid(*sizes, domain=self.domain, seed=self.seed)

        def shift_grid(source: task.Source) -> task.EvaluationSet:
            return task.EvaluationSet(source, task.NumberedExamples(grid), grid.size)

        return splits.task(
            name,
            replace(recipe, versions=self.versions),
            recipe,
            {"test": partial(self.test_set, recipe=recipe), "shift_grid": shift_grid},
            seed=self.seed,
            rule=top(2),
            multi_label=True,
            versions=max(1, self.versions),
        )


class TransferA(MultiMNIST):
    """MultiMNIST with the pairs of digits of domain A; see `Overlaid`."""

    domain = "A"


class TransferB(MultiMNIST):
    """MultiMNIST with the pairs of digits of domain B."""

    domain = "B"


@dataclass(frozen=True)
class DiverseMultiMNIST(OverlaidDigits):
    """One digit or two overlapping ones; right if the predicted set equals the true set.

    Tsai et al. 2020, section 6 and appendix B.2.

    Attributes:
      single_probability: of an image of one digit.
      threshold: a class is predicted if its score exceeds it. The paper does not print it.
    """

    single_probability: float = checked(1 / 6, lambda p: 0 <= p <= 1, "must be in [0, 1]")
    threshold: float = checked(0.5, lambda t: 0 < t < 1, "must be in (0, 1)")

    def build(self, name: str, read: task.Reader) -> task.Task:
        splits = self.splits(read)
        sizes = len(splits.class_names), self.canvas, self.max_shift
        recipe = Overlaid(*sizes, single_probability=self.single_probability)
        tests = {"test": partial(self.test_set, recipe=recipe)}
        rule = above(self.threshold)
        return splits.task(name, recipe, recipe, tests, seed=self.seed, rule=rule, multi_label=True)
