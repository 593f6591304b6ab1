"""Images of tetrominoes: the pieces, where they lie, and their masks."""

import jax
import numpy as np
import pytest

from capsjax.data import tasks
from capsjax.data.tasks.tetrominoes import PIECES, pieces


def squares(objects):
    """Which squares of the board each object covers, of images of 5×5 pixels a square."""
    covered = np.asarray(objects).max(-1) > 0
    blocks = covered.reshape(*covered.shape[:2], 7, 5, 7, 5)
    assert (blocks.all((3, 5)) == blocks.any((3, 5))).all()
    return blocks.any((3, 5))


@pytest.fixture(scope="module")
def batch():
    task = tasks.create("tetrominoes")
    return jax.jit(task.sample, static_argnums=3)(jax.random.key(0), *task.train, 1000)


def test_there_are_19_pieces():
    images, labels = pieces()
    assert len({image.tobytes() for image in images}) == 19
    assert (images.sum((1, 2, 3)) == 4 * 255).all()
    assert "".join(PIECES) == "IJLOSTZ"
    assert np.bincount(labels).tolist() == [2, 4, 4, 1, 2, 4, 2]


def test_pieces_cover_four_squares_each_and_none_twice(batch):
    covered = squares(batch.objects.images)
    present = np.asarray(batch.objects.labels).sum(-1)
    assert present.mean() > 0.99
    np.testing.assert_array_equal(covered.sum((2, 3)), 4 * present)
    assert covered.sum(1).max() == 1
    assert covered.any((0, 1)).all(), "every square of the board"
    np.testing.assert_array_equal(batch.image, np.asarray(batch.objects.images).sum(1))
    np.testing.assert_array_equal(batch.label, np.asarray(batch.objects.labels).max(1))


def test_a_piece_without_room_is_left_out():
    task = tasks.create("tetrominoes", board=4)
    batch = jax.jit(task.sample, static_argnums=3)(jax.random.key(0), *task.train, 100)
    present = np.asarray(batch.objects.labels).sum(-1)
    pixels = np.asarray(batch.objects.images).max(-1).sum((2, 3))
    np.testing.assert_array_equal(pixels, 4 * 25 * present)
    assert present.min() == 0
    assert (present[:, 0] == 1).all()
    test = task.evaluation_set("test")
    np.testing.assert_array_equal(test.labels(), test.examples(np.arange(len(test))).label)


def test_sets_are_fixed_and_differ():
    task = tasks.create("tetrominoes", validation_images=30, repeats=3)
    assert len(task.train.labels) == 3 * 19  # an epoch
    validation, test = task.validation, task.evaluation_set("test")
    assert (len(validation), len(test)) == (30, 320)
    images = [s.examples(np.arange(30)).image for s in (validation, validation, test)]
    np.testing.assert_array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])
    shown = {image.tobytes() for image in map(np.asarray, test.examples(np.arange(320)).image)}
    assert len(shown) > 315
