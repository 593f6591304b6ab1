import math

import jax
import numpy as np
import pytest

from capsjax.analysis.compactness import AMOUNTS, semantic_compactness
from capsjax.analysis.transformations import FACTORS, motions, moved_poses
from tests.analysis.centroids import Centroids, dots


def test_one_unit_alone_gives_log_d():
    poses = np.full((3, 9, 16), 0.3)
    poses[..., 5] = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(semantic_compactness(poses), np.full(3, math.log(16)), rtol=1e-6)


def test_all_units_alike_give_0():
    poses = np.linspace(-1, 1, 9)[:, None] * np.array([1, -1, 1, 1])
    assert abs(semantic_compactness(poses)) < 1e-6


def test_two_units_of_four_by_hand():
    # Variances 3 : 1 : 0 : 0.
    poses = np.array([[1.0, 1, 0, 0], [-1, -1, 0, 0]]) * np.sqrt([3, 1, 1, 1])
    expected = 0.75 * math.log(0.75 * 4) + 0.25 * math.log(0.25 * 4)
    np.testing.assert_allclose(semantic_compactness(poses), expected, rtol=1e-6)


def test_size_and_origin_do_not_matter():
    poses = jax.random.normal(jax.random.key(0), (4, 9, 8))
    np.testing.assert_allclose(
        semantic_compactness(poses), semantic_compactness(0.01 * poses + 1), rtol=1e-3
    )


def test_a_pose_that_never_moves_has_none():
    assert np.isnan(semantic_compactness(np.ones((3, 4))))


def test_a_network_with_one_unit_for_each_direction():
    images, labels = dots((0, 1), (2, -1)), np.array([0, 1])
    for factor in ("x", "y"):
        poses = moved_poses(Centroids(), images, labels, factor, [-3, -1, 0, 2])
        np.testing.assert_allclose(semantic_compactness(poses), np.full(2, math.log(4)), rtol=1e-5)


def test_amounts_of_the_table():
    assert set(AMOUNTS) == set(FACTORS)
    for factor, amounts in AMOUNTS.items():
        assert motions(factor, amounts).matrix.shape == (9, 2, 2)
        assert np.isclose(amounts[4], 1 if factor == "scale" else 0), "the middle is the image"


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_too_few(shape):
    with pytest.raises(ValueError, match="k ≥ 2, got shape"):
        semantic_compactness(np.ones(shape))
