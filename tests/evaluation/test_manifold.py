import math

import jax
import numpy as np
import pytest

from capsjax.data.tasks.overlaid import ShiftGrid
from capsjax.evaluation.manifold import (
    chamfer_distance,
    embed,
    fit_to,
    grid_distance,
    representations,
    shift_grid,
)
from tests.evaluation.centroids import Centroids, dots

TURN = np.array([[math.cos(1.0), -math.sin(1.0)], [math.sin(1.0), math.cos(1.0)]])
MIRROR = np.diag([1.0, -1.0])


@pytest.mark.parametrize("turn", [TURN, TURN @ MIRROR], ids=["turned", "mirrored"])
def test_a_grid_moved_turned_and_scaled_is_at_distance_0(turn):
    embedding = 7.3 * shift_grid() @ turn + np.array([100.0, -20.0])
    assert grid_distance(embedding) < 1e-9
    np.testing.assert_allclose(fit_to(embedding, shift_grid()), shift_grid(), atol=1e-9)


def test_pairs_belong_together():
    """The same points in another order are the grid as a set, but not an embedding of it."""
    shuffled = np.random.default_rng(0).permutation(shift_grid())
    assert chamfer_distance(shuffled, shift_grid()) == 0
    assert grid_distance(shuffled) > 0.5


def test_chamfer_by_hand():
    a, b = np.array([[0.0, 0], [3, 4]]), np.array([[0.0, 0], [0, 1], [0, 2]])
    to_b = (0 + math.hypot(3, 2)) / 2
    to_a = (0 + 1 + 2) / 3
    assert chamfer_distance(a, b) == pytest.approx((to_a + to_b) / 2)
    assert chamfer_distance(b, a) == pytest.approx((to_a + to_b) / 2)


def test_order_is_that_of_the_evaluation_set():
    grid = ShiftGrid(num_classes=2, canvas=36, max_shift=4)
    images = np.zeros((2, 28, 28, 1), np.uint8)
    drawn = jax.vmap(lambda i: grid.draw(jax.random.key(0), i, images))
    placements = drawn(jax.numpy.arange(grid.per_pair))
    np.testing.assert_array_equal(placements.offsets[:, 1], shift_grid())


def test_t_sne_finds_a_grid_in_many_dimensions():
    random = np.random.default_rng(0)
    inside, _ = np.linalg.qr(random.normal(size=(20, 2)))
    flat = shift_grid() @ inside.T
    embedding = embed(flat, seed=0)
    assert embedding.shape == (81, 2)
    np.testing.assert_array_equal(embedding, embed(flat, seed=0))
    assert grid_distance(embedding) < 0.25 < grid_distance(random.normal(size=(81, 2)))


def test_representations_of_a_layer(capsnet):
    images = dots((0, 0), (1, 2), (2, -3))
    np.testing.assert_allclose(
        representations(Centroids(), images, "centre", batch_size=2),
        [(0, 0), (1, 2), (2, -3)],
        atol=1e-5,
    )
    images = images[:, :12, :12]
    assert representations(capsnet, images, "capsules1").shape == (3, 2 * 8)
    with pytest.raises(ValueError, match="unknown layer 'capsule1': did you mean 'capsules1'"):
        representations(capsnet, images, "capsule1")
