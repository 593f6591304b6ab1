"""What to train and test on: source images, and how examples are made from them.

A recipe makes an example in three steps inside the compiled step. It chooses the source images,
draws parameters (moved how far, turned how much) and renders. All randomness is in the first two.
Choosing takes only labels, so the host can do it too, for images that do not fit on the device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from capsjax._names import lookup
from capsjax._options import Options, decay, fraction, positive
from capsjax.data.accuracy import Rule
from capsjax.data.dataset import Dataset
from capsjax.data.lazy_images import Images, LazyImages
from capsjax.data.sources import VALIDATION_SPLITS
from capsjax.data.splits import stratified_holdout

Index = Int[Array, ""]
Labels = Int[Array, "n"]  # of all source images
# Of one example: the places of its k source images, and what is there.
Chosen = Int[Array, "k"]
ChosenImages = UInt8[Array, "k h w c"]
ChosenLabels = Int[Array, "k"]

_BATCH = 512  # examples rendered at once


class Source(NamedTuple):
    """Images that examples are made from."""

    images: Images  # uint8 [n, h, w, c]
    labels: Int[np.ndarray, "n"]  # the class of each


class Objects(NamedTuple):
    """The k things in an image, each alone: what a decoder is to reconstruct."""

    images: Float[Array, "k h w c"]  # in [0, 1]
    labels: Float[Array, "k classes"]  # one-hot; all zeros where the image has fewer than k objects


class Example(NamedTuple):
    """What a network sees (one example, or a batch with a leading axis)."""

    image: Float[Array, "h w c"]  # the network's input
    label: Float[Array, "classes"]  # 1 for every class that is present, else 0
    objects: Objects  # the image's objects, each alone


@dataclass(frozen=True)
class Recipe(ABC):
    """How one example is made; hashable: its fields hold no arrays.

    Attributes:
      num_classes: length of the labels.
      canvas: rows and columns of an example's image; 0 for the source's own.
    """

    num_classes: int
    canvas: int = 0
    LABELS_NEED_IMAGES: ClassVar[bool] = False  # to know the labels; else any images will do

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        height, width, channels = source
        return self.canvas or height, self.canvas or width, channels

    def choose(self, key: PRNGKeyArray, labels: Labels, index: Index) -> Chosen:
        """Returns the places of an example's k source images; by default the one at `index`."""
        return index[None]

    @abstractmethod
    def draw(self, key: PRNGKeyArray, index: Index, images: ChosenImages) -> Any:
        """Draws the parameters (a NamedTuple of arrays) of an example of the chosen `images`."""

    @abstractmethod
    def render(self, images: ChosenImages, labels: ChosenLabels, parameters: Any) -> Example:
        """Returns the example of these images with these parameters."""


def make_example(
    recipe: Recipe, key: PRNGKeyArray, index: Index, images: ChosenImages, labels: ChosenLabels
) -> Example:
    """Makes a random example of the images that `recipe.choose` chose by the same key and index."""
    return recipe.render(images, labels, recipe.draw(key, index, images))


@dataclass(frozen=True)
class NumberedExamples:
    """Examples by number: example i is a pure function of i, the seed and its source images."""

    recipe: Recipe
    versions: int = 1  # how many consecutive examples are made of one source image
    seed: int = 0

    def choose(self, labels: Labels, number: Index) -> Chosen:
        return self.recipe.choose(self._key(number), labels, number // self.versions)

    def draw(self, number: Index, images: ChosenImages) -> Any:
        return self.recipe.draw(self._key(number), number // self.versions, images)

    def make(self, number: Index, images: ChosenImages, labels: ChosenLabels) -> Example:
        return self.recipe.render(images, labels, self.draw(number, images))

    def _key(self, number: Index) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.key(self.seed), number)


# Compiled once for all sets that are made alike.
@partial(jax.jit, static_argnums=0)
def _make(numbered: NumberedExamples, *of_examples: Any) -> Example:
    return jax.vmap(numbered.make)(*of_examples)


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """A fixed list of examples."""

    source: Source  # what they are made from
    numbered: NumberedExamples  # makes them
    size: int  # how many there are

    def __len__(self) -> int:
        return self.size

    @property
    def recipe(self) -> Recipe:
        return self.numbered.recipe

    @cached_property
    def chosen(self) -> Int[np.ndarray, "size k"]:
        """The places of every example's source images."""
        choose = jax.jit(jax.vmap(self.numbered.choose, in_axes=(None, 0)))
        return np.asarray(choose(self.source.labels, np.arange(self.size)))

    def examples(self, numbers: Int[np.ndarray, "n"]) -> Example:
        """Makes a batch of the examples of these numbers; only their images go to the device."""
        numbers = np.arange(self.size)[numbers]  # resolves negative ones: they determine keys
        images, labels = (array[self.chosen[numbers]] for array in self.source)
        return _make(self.numbered, numbers, images, labels)

    def labels(self) -> Float[np.ndarray, "size classes"]:
        """Returns every example's label: 1 for each class that is present."""
        if not self.size:
            return np.zeros((0, self.recipe.num_classes), np.float32)
        seen = self.recipe.LABELS_NEED_IMAGES
        images = self.source.images[self.chosen if seen else self.chosen[0]]
        make = jax.vmap(self.numbered.make, in_axes=(0, 0 if seen else None, 0))
        labels = jax.jit(lambda *of_examples: make(*of_examples).label)
        return np.asarray(labels(np.arange(self.size), images, self.source.labels[self.chosen]))


@dataclass(frozen=True, eq=False)
class Task:
    """What to train on, what to test on, and what counts as correct."""

    name: str
    class_names: tuple[str, ...]
    train: Source  # images that the parameters are fitted to
    recipe: Recipe  # makes training examples
    validation: EvaluationSet  # of held-out images; the best checkpoint is chosen by it
    rule: Rule
    multi_label: bool = False  # whether an image may show several classes
    versions: int = 1  # training examples of a source image where they are limited, else 1
    # The evaluation sets of the test split by name, loaded when asked for.
    tests: Mapping[str, Callable[[], EvaluationSet]] = field(default_factory=dict)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.recipe.image_shape(self.train.images.shape[1:])

    def sample(
        self, key: PRNGKeyArray, images: UInt8[Array, "n h w c"], labels: Labels, count: int
    ) -> Example:
        """Returns `count` random training examples of `self.train`, drawn with replacement."""
        images, labels = jnp.asarray(images), jnp.asarray(labels)
        index_key, example_key = jax.random.split(key)
        indices = jax.random.randint(index_key, (count,), 0, len(labels) * self.versions)

        def example(key: PRNGKeyArray, index: Index) -> Example:
            chosen = self.recipe.choose(key, labels, index)
            return make_example(self.recipe, key, index, images[chosen], labels[chosen])

        return jax.vmap(example)(jax.random.split(example_key, count), indices)

    def evaluation_set(self, name: str) -> EvaluationSet:
        """Returns a fixed set: one of `tests`, "validation", or "train", made as in training."""
        sets = {
            "train": lambda: fixed_set(self.train, self.recipe),
            "validation": lambda: self.validation,
            **self.tests,
        }
        return lookup(f"evaluation set of {self.name}", name, sets)()


def take(of: Dataset | Source, indices: Int[np.ndarray, "n"] | slice = slice(None)) -> Source:
    """Returns the images at `indices`, as an array or still lazy, and their labels."""
    images = of.images
    chosen = images.select(indices) if isinstance(images, LazyImages) else images[indices]
    return Source(chosen, of.labels[indices])


def fixed_set(source: Source, recipe: Recipe, versions: int = 1, seed: int = 0) -> EvaluationSet:
    """Makes `versions` examples of every image in `source`."""
    numbered = NumberedExamples(recipe, versions, seed)
    return EvaluationSet(source, numbered, versions * len(source.labels))


# Takes the names of a data set and of a split, and `fitting` for a folder whose images are made to
# fit: `capsjax.data.load` with its other options filled in.
Reader = Callable[..., Dataset]


class Splits(NamedTuple):
    """A source's images, split in three without overlap; `test` reads the test split."""

    class_names: tuple[str, ...]
    train: Source
    validation: Source
    test: Callable[[], Source]
    has_test: bool

    def task(
        self,
        name: str,
        train: Recipe,
        validation: Recipe,
        tests: Mapping[str, Callable[[Source], EvaluationSet]],
        *,
        seed: int = 0,
        **options: Any,
    ) -> Task:
        """Makes a task; `tests` make evaluation sets, and `seed` is that of the validation set."""
        return Task(
            name=name,
            class_names=self.class_names,
            train=self.train,
            recipe=train,
            validation=fixed_set(self.validation, validation, seed=seed),
            tests={name: partial(self._made, tests[name]) for name in tests if self.has_test},
            **options,
        )

    def _made(self, make: Callable[[Source], EvaluationSet]) -> EvaluationSet:
        return make(self.test())


@dataclass(frozen=True)
class Family(Options):
    """The base class of tasks that differ in their options alone; each has its own defaults.

    Attributes:
      validation_fraction: part of the training split held out, stratified.
      train_fraction: part of the rest to train on, stratified; fewer images, shorter epochs.
    """

    validation_fraction: float = decay(0.1)
    train_fraction: float = fraction(1.0)
    # Whether a validation split of the source takes the place of what would be held out. (The
    # training split of other sources than a user's may contain it.)
    own_validation: ClassVar[bool] = False

    def build(self, name: str, read: Reader) -> Task:
        raise NotImplementedError

    def read(self, source: str, read: Reader) -> Splits:
        """Splits the training set in two, alike for all training seeds; tests are read later."""
        dataset = read(source, "train")
        own = [s for s in VALIDATION_SPLITS if s in dataset.splits and self.own_validation]
        part = 0.0 if own else self.validation_fraction
        kept, held_out = stratified_holdout(dataset.labels, part, seed=0)
        if self.train_fraction < 1:
            used, _ = stratified_holdout(dataset.labels[kept], 1 - self.train_fraction, seed=1)
            kept = kept[used]
        return Splits(
            dataset.class_names,
            take(dataset, kept),
            take(read(source, own[0])) if own else take(dataset, held_out),
            lambda: take(read(source, "test")),
            "test" in dataset.splits,
        )


@dataclass(frozen=True)
class FromSource(Family):
    """The base class of tasks whose images are made from another set's.

    Attributes:
      source: of the images, see `capsjax.data.load`.
    """

    source: str = "mnist"


@dataclass(frozen=True)
class OnCanvas(FromSource):
    """Tasks whose images are moved on a canvas.

    Attributes:
      canvas: rows and columns.
      max_shift: of each object; pixels from the middle, either way along each axis.
      test_versions: examples per image in the test sets.
      seed: of the evaluation sets.
    """

    canvas: int = 40
    max_shift: int = 6
    test_versions: int = positive(1)
    seed: int = 0

    def splits(self, read: Reader) -> Splits:
        """Returns the source's images; raises ValueError unless they fit on the canvas."""
        splits, canvas = self.read(self.source, read), self.canvas
        height, width = splits.train.images.shape[1:3]
        if canvas < max(height, width):
            raise ValueError(f"canvas: {canvas} is smaller than the images of {height}×{width}")
        if not 0 <= self.max_shift < canvas:
            raise ValueError(f"max_shift must be in [0, {canvas}) here, got {self.max_shift}")
        return splits

    def test_set(self, source: Source, recipe: Recipe) -> EvaluationSet:
        return fixed_set(source, recipe, self.test_versions, self.seed)


class Rendered(NamedTuple):
    """Examples, as bytes."""

    images: UInt8[np.ndarray, "n h w c"]  # rounded to 0 … 255
    labels: Float[np.ndarray, "n classes"]  # 1 for every class that is present, else 0
    # by name, what the recipe drew; `source` (where there are several, `sources`) are places among
    # the set's source images
    parameters: dict[str, np.ndarray]


def render(examples: EvaluationSet, indices: Int[np.ndarray, "n"] | None = None) -> Rendered:
    """Returns the examples at `indices`, all of them by default, as arrays on the host."""
    every = np.arange(len(examples))
    indices = every if indices is None else every[indices]
    chosen = examples.chosen[indices]
    sources = indices, examples.source.images[chosen], examples.source.labels[chosen]
    images, labels, drawn = jax.tree.map(np.asarray, _render(examples.numbered, sources))
    parameters = {"source": chosen[:, 0]} if chosen.shape[1] == 1 else {"sources": chosen}
    for path, values in jax.tree_util.tree_leaves_with_path(drawn):
        parameters[jax.tree_util.keystr(path, simple=True, separator="_")] = values
    return Rendered(images, labels, parameters)


@partial(jax.jit, static_argnums=0)
def _render(numbered: NumberedExamples, sources: tuple[Array, Array, Array]) -> Any:
    def make(example: tuple[Index, ChosenImages, ChosenLabels]) -> tuple[Array, Array, Any]:
        index, images, labels = example
        drawn = numbered.draw(index, images)
        made = numbered.recipe.render(images, labels, drawn)
        return (255 * made.image).round().astype(np.uint8), made.label, drawn

    return jax.lax.map(make, sources, batch_size=min(_BATCH, len(sources[0])))


def spread(examples: EvaluationSet, count: int) -> Int[np.ndarray, "count"]:
    """Returns `count` evenly spaced indices from the whole set, or all if there are fewer."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    count = min(count, len(examples))
    return np.arange(count) * len(examples) // count
