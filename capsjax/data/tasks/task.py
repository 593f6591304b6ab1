"""What to train and test on: source arrays, and how examples are made from them.

An example is made in two steps. A recipe first draws parameters (which source images, moved how
far, turned how much), then renders them. All that is random is in the first step, which can be
tested and exported; the second is a pure function of the parameters and the source arrays. Both
run on the device, inside the compiled step; the arrays are arguments of the program.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from capsjax.data.accuracy import Rule
from capsjax.data.dataset import Dataset
from capsjax.data.stored import select


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Present:
    """Those source images that one example is made of, found by their places.

    It stands for all of them where they are too many for the device.
    """

    places: Int[Array, "k"] | Int[np.ndarray, "k"]
    images: UInt8[Array, "k h w c"] | UInt8[np.ndarray, "k h w c"]

    def __getitem__(self, place: Int[Array, ""]) -> UInt8[Array, "h w c"]:
        return jnp.asarray(self.images)[jnp.argmax(self.places == place)]


class Arrays(NamedTuple):
    """Source images and labels.

    Attributes:
      images: uint8 [n, h, w, c]. On the host an array or `Stored`; in a program, where recipes see
        them, an array or, where an example comes with images of its own, `Present`.
      labels: of the images.
    """

    images: Any
    labels: Int[Array, "n"] | Int[np.ndarray, "n"]


# Axes for vmap over examples, each with `Present` images of its own; labels are those of all.
EACH: Any = Arrays(0, None)  # type: ignore[arg-type]


class Objects(NamedTuple):
    """The k things in an image, each alone: what a decoder is to reconstruct.

    Attributes:
      images: in [0, 1].
      labels: one-hot; all zeros where the image has fewer than k objects.
    """

    images: Float[Array, "k h w c"]
    labels: Float[Array, "k classes"]


class Example(NamedTuple):
    """What a network sees (one example, or a batch with a leading axis).

    Attributes:
      image: what it looks at.
      label: 1 for every class that is present, else 0.
      objects: the image's objects, each alone.
    """

    image: Float[Array, "h w c"]
    label: Float[Array, "classes"]
    objects: Objects


class Recipe(Protocol):
    """How one example is made; hashable, with nothing but plain numbers in it."""

    @property
    def num_classes(self) -> int:
        """Length of the labels."""

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        """Height, width and channels of an example made from images of shape `source`."""

    def sources(
        self, key: PRNGKeyArray, labels: Int[Array, "n"], index: Int[Array, ""]
    ) -> Int[Array, "k"]:
        """The places of all source images that an example of the one at `index` is made of."""

    def draw(self, key: PRNGKeyArray, arrays: Arrays, index: Int[Array, ""]) -> Any:
        """Parameters (a NamedTuple of arrays) of an example of the source image at `index`."""

    def render(self, arrays: Arrays, parameters: Any) -> Example:
        """The example with these parameters."""


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """A fixed list of examples: example i is a pure function of i, the seed and the arrays.

    Attributes:
      arrays: the source.
      recipe: makes the examples.
      size: how many there are.
      versions: so many consecutive examples are of one source image.
      seed: of the recipe's draws.
    """

    arrays: Arrays
    recipe: Recipe
    size: int
    versions: int = 1
    seed: int = 0

    def __len__(self) -> int:
        return self.size

    def parameters(self, arrays: Arrays, index: Int[Array, ""]) -> Any:
        """The recipe's parameters of example `index`.

        Args:
          arrays: `self.arrays`, as they lie on the device: an argument, so that a program that
            this is compiled into does not hold them as constants.
          index: in [0, size).
        """
        return self.recipe.draw(self._key(index), _on_device(arrays), index // self.versions)

    def sources(self, labels: Int[Array, "n"], index: Int[Array, ""]) -> Int[Array, "k"]:
        """The places in the arrays of the source images of example `index`."""
        return self.recipe.sources(self._key(index), labels, index // self.versions)

    def _key(self, index: Int[Array, ""]) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.key(self.seed), index)

    def example(self, arrays: Arrays, index: Int[Array, ""]) -> Example:
        """Example `index`; see `parameters`."""
        return self.recipe.render(_on_device(arrays), self.parameters(arrays, index))

    def labels(self) -> Float[np.ndarray, "size classes"]:
        """Every example's label: 1 for each class that is present."""
        if not self.size:
            return np.zeros((0, self.recipe.num_classes), np.float32)

        # They do not depend on the images: a black one is in the place of all.
        black = jnp.zeros((1, *self.arrays.images.shape[1:]), jnp.uint8)

        @jax.jit
        def labels(of_sources: Int[Array, "n"]) -> Float[Array, "size classes"]:
            arrays = Arrays(black, of_sources)
            return jax.vmap(lambda i: self.example(arrays, i).label)(jnp.arange(self.size))

        return np.asarray(labels(self.arrays.labels))


@dataclass(frozen=True, eq=False)
class Task:
    """What to train on, what to test on, and what counts as right.

    Attributes:
      name: see `capsjax.data.tasks.create`.
      class_names: in the order of the labels.
      train: source arrays that the parameters are fitted to.
      recipe: makes training examples.
      versions: different training examples of each source image, where there are only so many; 1
        where every draw is new.
      validation: made from images held out of the training split, stratified; what the best
        checkpoint is chosen by. Empty with `validation_fraction=0`.
      rule: from scores to the classes that they name.
      multi_label: whether an image may show several classes.
      tests: the evaluation sets of the test split by name, as functions: they are loaded when
        asked for.
    """

    name: str
    class_names: tuple[str, ...]
    train: Arrays
    recipe: Recipe
    validation: EvaluationSet
    rule: Rule
    multi_label: bool = False
    versions: int = 1
    tests: Mapping[str, Callable[[], EvaluationSet]] = field(default_factory=dict)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an example's image."""
        return self.recipe.image_shape(self.train.images.shape[1:])

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def training_example(self, key: PRNGKeyArray, arrays: Arrays, index: Int[Array, ""]) -> Example:
        """One example, a pure function of `key` and `index`.

        Args:
          key: of this example alone.
          arrays: `self.train`, as they lie on the device.
          index: of n source images, version v of image i is v · n + i.
        """
        arrays = _on_device(arrays)
        return self.recipe.render(arrays, self.recipe.draw(key, arrays, index))

    def sample(self, key: PRNGKeyArray, arrays: Arrays, count: int) -> Example:
        """A batch of `count` random training examples; jit-able with `count` static.

        The source images are drawn with replacement: training goes through them in epochs
        instead (`capsjax.training.step.run_steps`).
        """
        index_key, example_key = jax.random.split(key)
        most = len(arrays.labels) * self.versions
        indices = jax.random.randint(index_key, (count,), 0, most)
        example = jax.vmap(self.training_example, in_axes=(0, None, 0))
        return example(jax.random.split(example_key, count), arrays, indices)

    def evaluation_set(self, name: str) -> EvaluationSet:
        """The fixed set `name`: "train", "validation", or one of `tests`.

        "train" is one example of each training image, made as in training.

        Raises:
          ValueError: there is none of that name.
        """
        if name == "train":
            return EvaluationSet(self.train, self.recipe, len(self.train.labels))
        if name == "validation":
            return self.validation
        if name not in self.tests:
            known = ", ".join(["train", "validation", *self.tests])
            raise ValueError(f"{self.name} has no evaluation set {name!r}; expected one of {known}")
        return self.tests[name]()


def take(dataset: Dataset, indices: Int[np.ndarray, "n"] | slice = slice(None)) -> Arrays:
    """The arrays of `dataset` at `indices`."""
    return Arrays(select(dataset.images, indices), dataset.labels[indices])


def _on_device(arrays: Arrays) -> Arrays:
    """NumPy arrays cannot be indexed with traced numbers; others stay what they are."""
    images = arrays.images
    if not isinstance(images, Present):
        images = jnp.asarray(images)
    return Arrays(images, jnp.asarray(arrays.labels))
