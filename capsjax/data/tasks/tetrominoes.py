"""Coloured tetrominoes that do not overlap, to be told apart without labels."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from capsjax._options import Options, checked, not_negative, positive
from capsjax.data.accuracy import above
from capsjax.data.tasks import task
from capsjax.functional import to_unit

PIECES = {
    "I": ("####",),
    "J": ("#..", "###"),
    "L": ("..#", "###"),
    "O": ("##", "##"),
    "S": (".##", "##."),
    "T": ("###", ".#."),
    "Z": ("##.", ".##"),
}
SIDE = 4  # squares of the longest piece
COLOURS = np.array(
    [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)], dtype=np.float32
)


def pieces() -> task.Source:
    """Returns the 19 pieces (in all rotations), in the top left of 4×4 pixels, and their kinds."""
    images, labels = [], []
    for label, rows in enumerate(PIECES.values()):
        shape = np.array([[square == "#" for square in row] for row in rows])
        turned = {(t.shape, t.tobytes()): t for t in (np.rot90(shape, n) for n in range(4))}
        for piece in turned.values():
            margins = [(0, SIDE - length) for length in piece.shape]
            images.append(np.pad(255 * piece.astype(np.uint8), margins)[..., None])
            labels.append(label)
    return task.Source(np.stack(images), np.array(labels, np.int32))


class Placed(NamedTuple):
    corner: Int[Array, "k 2"]  # row and column of its first square
    colour: Int[Array, "k"]  # a row of `COLOURS`
    present: Bool[Array, "k"]  # False where no room was left for it


@dataclass(frozen=True)
class Scattered(task.Recipe):
    """Pieces on a black board, in any place where they cover no other."""

    LABELS_NEED_IMAGES: ClassVar[bool] = True
    num_objects: int = 3  # pieces in an image; one for which there is no room is left out
    board: int = 7  # squares along each side

    def image_shape(self, source: tuple[int, ...]) -> tuple[int, int, int]:
        return self.canvas, self.canvas, 3

    def choose(self, key: PRNGKeyArray, labels: task.Labels, index: task.Index) -> task.Chosen:
        others = jax.random.randint(key, (self.num_objects - 1,), 0, len(labels))
        return jnp.concatenate([index[None] % len(labels), others])

    def draw(self, key: PRNGKeyArray, index: task.Index, images: task.ChosenImages) -> Placed:
        colour_key, *keys = jax.random.split(key, 1 + self.num_objects)
        # Beyond the board all is taken.
        taken = jnp.pad(jnp.zeros((self.board, self.board)), (0, SIDE), constant_values=1)
        corners, present = [], []
        for key, image in zip(keys, to_unit(images[..., 0]), strict=True):
            covered = jax.scipy.signal.correlate2d(taken, image, mode="valid") > 0.5
            place = jax.random.categorical(key, jnp.where(covered, -jnp.inf, 0).ravel())
            corners.append(jnp.stack(jnp.divmod(place, covered.shape[1])))
            present.append(~jnp.all(covered))
            taken += present[-1] * self._on_board(image, corners[-1])
        colour = jax.random.randint(colour_key, (self.num_objects,), 0, len(COLOURS))
        return Placed(jnp.stack(corners), colour, jnp.stack(present))

    def render(
        self, images: task.ChosenImages, labels: task.ChosenLabels, parameters: Placed
    ) -> task.Example:
        def alone(image, corner, colour, present):
            squares = self._on_board(to_unit(image[..., 0]), corner)
            squares = squares[: self.board, : self.board, None] * present
            side = self.canvas // self.board
            pixels = jnp.repeat(jnp.repeat(squares, side, axis=0), side, axis=1)
            return pixels * jnp.asarray(COLOURS)[colour]

        objects = jax.vmap(alone)(images, *parameters)
        present = jax.nn.one_hot(labels, self.num_classes) * parameters.present[:, None]
        return task.Example(objects.sum(0), present.max(0), task.Objects(objects, present))

    def _on_board(self, image: Float[Array, "h w"], corner: Int[Array, "2"]) -> Array:
        """Puts a piece on the board and a margin to the right and below."""
        extent = self.board + SIDE
        return lax.dynamic_update_slice(jnp.zeros((extent, extent)), image, tuple(corner))


@dataclass(frozen=True)
class Tetrominoes(Options):
    """Three tetrominoes of six colours on black, 35×35: like Locatello et al. 2020's Tetrominoes.

    All 19 turned pieces occur (theirs has 17). They are generated, not read from a file, so their
    number is not limited. The label says which of the seven pieces are in an image; `objects` has
    each alone, and its pixels are its mask.

    Attributes:
      num_objects: pieces in an image.
      board: squares along each side of the image.
      square: pixels along each side of a square.
      repeats: an epoch shows each of the 19 turned pieces so many times, beside others.
      validation_images: of the validation set.
      test_images: of the test set.
      seed: of the evaluation sets.
    """

    num_objects: int = positive(3)
    board: int = checked(7, lambda n: n >= SIDE, f"must be at least {SIDE}")
    square: int = positive(5)
    repeats: int = positive(320)
    validation_images: int = not_negative(320)
    test_images: int = positive(320)
    seed: int = not_negative(0)

    def build(self, name: str, read: task.Reader) -> task.Task:
        canvas = self.board * self.square
        recipe, source = Scattered(len(PIECES), canvas, self.num_objects, self.board), pieces()

        def fixed(size: int, seed: int) -> task.EvaluationSet:
            numbered = task.NumberedExamples(recipe, seed=2 * self.seed + seed)
            return task.EvaluationSet(source, numbered, size)

        return task.Task(
            name=name,
            class_names=tuple(PIECES),
            train=task.Source(*(np.concatenate([array] * self.repeats) for array in source)),
            recipe=recipe,
            validation=fixed(self.validation_images, 1),
            rule=above(0.5),
            multi_label=True,
            tests={"test": lambda: fixed(self.test_images, 2)},
        )
