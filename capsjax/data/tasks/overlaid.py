"""Recipes of two overlapping objects per image.

They need source images that are sorted by label (`by_class`): then the images of a class are a
range, and a partner of another class is two random numbers away.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, UInt8

from capsjax.data.lazy_images import select
from capsjax.data.tasks.task import Example, Index, Objects, Source
from capsjax.data.transforms import overlay, pad, random_offset, translate
from capsjax.functional import to_unit

Pairs = tuple[tuple[int, int], ...]


class Placements(NamedTuple):
    """Two images on one canvas."""

    offsets: Int[Array, "2 2"]  # rows down and columns to the right, from the middle of the canvas
    present: Bool[Array, "2"]  # which of them are there


@dataclass(frozen=True)
class _OnCanvas:
    """How recipes of two objects are rendered."""

    num_classes: int  # length of the labels
    canvas: int  # rows and columns
    max_shift: int  # pixels from the middle, either way along each axis

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        return self.canvas, self.canvas, source[-1]

    def render(
        self, images: UInt8[Array, "2 h w c"], labels: Int[Array, "2"], parameters: Placements
    ) -> Example:
        offsets, present = parameters

        def alone(image, offset):
            canvas = pad(image, (self.canvas, self.canvas))
            return to_unit(translate(canvas, offset, self.max_shift))

        images = jax.vmap(alone)(images, offsets) * present[:, None, None, None]
        labels = jax.nn.one_hot(labels, self.num_classes) * present[:, None]
        return Example(overlay(images), jnp.sum(labels, axis=0), Objects(images, labels))


@dataclass(frozen=True)
class Overlaid(_OnCanvas):
    """An object and, mostly, another of a different class on top.

    MultiMNIST: Sabour et al. 2017, section 6.1; with `single_probability` 1/6 DiverseMultiMNIST:
    Tsai et al. 2020, section 6 and appendix B.2. The first object is the one asked for, so an
    epoch goes through all of them; the second's class is uniform among the classes that `pairs`
    allows, and its image uniform in that class.

    Attributes:
      pairs: the classes that may be seen together.
      single_probability: of an image with one object only.
      versions: if positive, the number of different images of each first object, drawn once and for
        all with `seed`: of n source images, index v · n + i is version v of first object i, and the
        key counts for nothing. 0: no limit.
      seed: see `versions`.
    """

    pairs: Pairs
    single_probability: float = 0.0
    versions: int = 0
    seed: int = 0

    def choose(self, key: PRNGKeyArray, labels: Int[Array, "n"], index: Index) -> Int[Array, "2"]:
        class_key, image_key, _, _ = self._keys(key, index)
        index = index % len(labels)
        partners, counts = _partners(self.pairs, self.num_classes)
        labels = jnp.asarray(labels)  # NumPy's cannot be indexed by traced numbers
        first_class = labels[index]
        choice = jax.random.randint(class_key, (), 0, counts[first_class])
        start, stop = class_range(labels, partners[first_class, choice])
        return jnp.stack([index, jax.random.randint(image_key, (), start, stop)])

    def draw(self, key: PRNGKeyArray, index: Index, images: UInt8[Array, "2 h w c"]) -> Placements:
        _, _, offset_key, single_key = self._keys(key, index)
        offset_keys = jax.random.split(offset_key)
        return Placements(
            offsets=jax.vmap(lambda k: random_offset(k, self.max_shift))(offset_keys),
            present=jnp.stack(
                [jnp.array(True), ~jax.random.bernoulli(single_key, self.single_probability)]
            ),
        )

    def _keys(self, key: PRNGKeyArray, index: Index) -> Key[Array, "4"]:
        """Makes keys for the second object's class and image, the offsets and the number."""
        if self.versions:
            key = jax.random.fold_in(jax.random.key(self.seed), index)
        return jax.random.split(key, 4)


@dataclass(frozen=True)
class ShiftGrid(_OnCanvas):
    """One object fixed in the middle and one moving over a grid (Lin et al. 2018, section 3.2).

    Example i has offset i mod n² of the grid, row by row, and ordered pair of classes i div n²
    (n = 2 max_shift + 1): first all with class 0 fixed, the moving class counted up, then all with
    class 1 fixed, and so on. Each class is represented by the first of its images.
    """

    @property
    def size(self) -> int:
        """The number of examples."""
        return self.num_classes * (self.num_classes - 1) * self.per_pair

    @property
    def per_pair(self) -> int:
        """The number of examples of one pair: 81 in the paper."""
        return (2 * self.max_shift + 1) ** 2

    def first_of(self, fixed: int, moving: int) -> int:
        """Returns the first example of a pair of classes; `per_pair` belong to it."""
        if fixed == moving or not {fixed, moving} <= set(range(self.num_classes)):
            raise ValueError(
                f"expected two different classes below {self.num_classes}, got {fixed}, {moving}"
            )
        pair = fixed * (self.num_classes - 1) + moving - (moving > fixed)
        return pair * self.per_pair

    def choose(self, key: PRNGKeyArray, labels: Int[Array, "n"], index: Index) -> Int[Array, "2"]:
        # Nothing is random here.
        fixed, moving = jnp.divmod(index // self.per_pair, self.num_classes - 1)
        moving += moving >= fixed
        return jnp.stack([class_range(labels, label)[0] for label in (fixed, moving)])

    def draw(self, key: PRNGKeyArray, index: Index, images: UInt8[Array, "2 h w c"]) -> Placements:
        place = index % self.per_pair
        offset = jnp.stack(jnp.divmod(place, 2 * self.max_shift + 1)) - self.max_shift
        offsets = jnp.stack([jnp.zeros_like(offset), offset])
        return Placements(offsets=offsets, present=jnp.ones(2, bool))


def all_pairs(num_classes: int) -> Pairs:
    """Returns every two different classes."""
    return tuple(combinations(range(num_classes), 2))


def domain_pairs(domain: str) -> Pairs:
    """Returns the pairs of digits in the transfer domain "A" or "B" (Lin et al. 2018, section 3.3).

    The paper asks for two disjoint sets that each cover all ten digits, and prints seven pairs: (1,
    2), (3, 4), (7, 9) and (1, 8) of A; (2, 3), (4, 1) and, only tested, (7, 8) of B. Here a pair
    belongs to A if the last digit of its sum is 3 or at least 6, and else to B, which puts those
    seven where they are printed: 23 and 22 pairs, in which each digit has 4 or 5 partners.
    """

    def in_a(a: int, b: int) -> bool:
        last = (a + b) % 10
        return last == 3 or last >= 6

    return tuple(pair for pair in all_pairs(10) if in_a(*pair) == (domain == "A"))


def by_class(source: Source) -> Source:
    """Sorts the images by label, and leaves those of a label in their order."""
    order = np.argsort(source.labels, kind="stable")
    return Source(select(source.images, order), source.labels[order])


def class_range(labels: Int[Array, "n"], label: Index) -> tuple[Index, Index]:
    """Returns where the images of a class begin and end among sorted `labels`."""
    return jnp.searchsorted(labels, label), jnp.searchsorted(labels, label, side="right")


def _partners(
    pairs: Pairs, num_classes: int
) -> tuple[Int[Array, "classes most"], Int[Array, "classes"]]:
    """Returns, for each class, its partners (padded) and their number."""
    paired = np.zeros((num_classes, num_classes), bool)
    for a, b in pairs:
        paired[a, b] = paired[b, a] = True
    counts = paired.sum(axis=1)
    partners = np.argsort(~paired, axis=1, kind="stable")[:, : counts.max()]
    return jnp.asarray(partners, jnp.int32), jnp.asarray(counts, jnp.int32)
