import math

import jax
import numpy as np

from capsjax.evaluation.compactness import compactness_of_mean, semantic_compactness


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


def test_averaged_first_it_is_0_where_each_image_moves_another_unit():
    poses = np.zeros((4, 9, 4))
    for image in range(4):
        poses[image, :, image] = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(semantic_compactness(poses), np.full(4, math.log(4)), rtol=1e-6)
    assert abs(compactness_of_mean(poses)) < 1e-6
    same = np.broadcast_to(poses[:1], poses.shape)
    np.testing.assert_allclose(compactness_of_mean(same), math.log(4), rtol=1e-6)
    # An image that does not move counts for nothing.
    still = np.concatenate([same, np.ones((1, 9, 4))])
    np.testing.assert_allclose(compactness_of_mean(still), math.log(4), rtol=1e-6)


def test_the_printed_sizes_are_too_small_for_the_mean_over_images():
    """Nine random versions of an image: no structure at all, and far above table 5's 0.0003."""
    poses = jax.random.normal(jax.random.key(0), (2000, 9, 16))
    assert semantic_compactness(poses).mean() > 0.1
    assert compactness_of_mean(poses) < 0.0003


def test_a_pose_that_never_moves_has_none():
    assert np.isnan(semantic_compactness(np.ones((3, 4))))
