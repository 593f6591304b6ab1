import jax
import numpy as np
import pytest

from capsjax.evaluation.alignment import TRANSFORMATIONS, align, direction_cosines
from capsjax.evaluation.transformations import moved_poses
from tests.evaluation.centroids import Centroids, dots


# From 500,000 sets in NumPy's float64 by another way (the Gram matrix of the five vectors), where
# the standard error of the mean is 0.0001.
@pytest.mark.parametrize(("d", "mean", "std"), [(32, 0.4623, 0.2691), (16, 0.4984, 0.2769)])
def test_five_random_vectors(d, mean, std):
    ratios = np.asarray(align(jax.random.normal(jax.random.key(0), (20_000, 5, d))).ratios)
    # Four standard errors of a mean over 20,000 sets, one of which has 0.0018 · √1000.
    assert abs(ratios.mean() - mean) < 4 * 0.0021 / np.sqrt(20)
    assert abs(ratios.std() - std) < 0.002


def test_a_vector_across():
    ratios, direction = align(np.array([[-2.0, 0], [-3.0, 0], [0.0, 1]]))
    np.testing.assert_allclose(ratios, [1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(direction, [-1, 0], atol=1e-6)


def test_no_centring():
    # Around their mean these vary along the second axis; from 0 they lie along the first.
    _, direction = align(np.array([[5.0, 0.2], [5.0, -0.2], [5.0, 0.0]]))
    np.testing.assert_allclose(direction, [1, 0], atol=1e-3)


def test_a_vector_of_zeros_has_no_ratio():
    ratios = align(np.array([[1.0, 0], [0.0, 0]])).ratios
    assert ratios[0] == 1
    assert np.isnan(ratios[1])


def test_a_network_that_moves_along_one_line():
    images, labels = dots((0, 0), (1, -1)), np.array([0, 1])
    found = {}
    for name in ("x+", "x-", "y+"):
        factor, amounts = TRANSFORMATIONS[name]
        poses = moved_poses(Centroids(), images, labels, factor, (0.0, *amounts[:4]))
        found[name] = align(poses[:, 1:] - poses[:, :1])
        np.testing.assert_allclose(found[name].ratios, 1, rtol=1e-5)
    opposite = direction_cosines(found["x+"].direction, found["x-"].direction)
    np.testing.assert_allclose(opposite, -1, rtol=1e-5)
    across = direction_cosines(found["x+"].direction, found["y+"].direction)
    np.testing.assert_allclose(across, 0, atol=1e-5)


def test_histogram_keeps_every_cosine():
    unit = align(jax.random.normal(jax.random.key(1), (1000, 5, 32))).direction
    cosines = direction_cosines(unit, np.concatenate([unit[:500], -unit[500:]]))
    counts, _ = np.histogram(cosines, bins=10, range=(-1, 1))
    np.testing.assert_array_equal(counts, [500, *[0] * 8, 500])
