import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.evaluation.transformations import FACTORS, Motion, motions, move, moved_poses
from tests.evaluation.centroids import Centroids, dots

# (row, column) of a dot at (2, 3) after the motion.
WHERE = {
    ("rotation", 90.0): (-3, 2),  # counter-clockwise as seen: what was right goes up
    ("x", 2.0): (2, 5),
    ("y", -1.0): (1, 3),
    ("scale", 0.5): (1, 1.5),
    ("shear_x", 0.5): (2, 4),
    ("shear_y", -1 / 3): (1, 3),
}


@pytest.mark.parametrize(("factor", "amount"), WHERE)
def test_a_dot_goes_where_it_should(factor, amount):
    dot = dots((2, 3))
    poses = moved_poses(Centroids(), dot, np.array([0]), factor, [amount])
    assert poses.shape == (1, 1, 4)
    np.testing.assert_allclose(poses[0, 0, :2], WHERE[factor, amount], atol=0.03)


@pytest.mark.parametrize("factor", FACTORS)
def test_the_neutral_amount_leaves_the_image_as_it_is(factor):
    images = dots((0, 0), (2, -3)).astype(np.float32) / 256
    (matrix,), (translation,) = motions(factor, [1.0 if factor == "scale" else 0.0])
    moved = move(jnp.asarray(images), Motion(matrix, translation))
    np.testing.assert_array_equal(moved, images)


def test_each_image_by_each_amount_and_its_own_class():
    images, labels = dots((0, 0), (1, -2), (-3, 3)), np.array([0, 1, 0])
    poses = moved_poses(Centroids(), images, labels, "x", [-1.0, 0.0, 2.0], batch_size=2)
    expected = [[-1, 0, 2], [3, 2, 0], [2, 3, 5]]
    np.testing.assert_allclose(poses[..., 1], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("factor", "amounts", "match"),
    [
        ("shear", [0.1], "unknown factor 'shear': did you mean 'shear_"),
        ("scale", [1.0, 0.0], "scale must be positive, got 0"),
        ("rotation", 10, "amounts must be a list of finite numbers, got 10"),
        ("x", [np.nan], "list of finite"),
    ],
)
def test_bad_motions(factor, amounts, match):
    with pytest.raises(ValueError, match=match):
        motions(factor, amounts)


def test_what_cannot_be_moved():
    with pytest.raises(ValueError, match="motion must be one, got those of 2"):
        move(dots((0, 0)), motions("x", [1.0, 2.0]))
    with pytest.raises(ValueError, match="floats up to 255"):
        move(np.full((1, 5, 5, 1), 255.0), jax.tree.map(lambda x: x[0], motions("x", [1.0])))


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.array([0]), "one integer for each of the 2 images"),
        (np.array([0, 2]), r"0 to 1; got 0 to 2"),
    ],
)
def test_bad_labels(labels, match):
    with pytest.raises(ValueError, match=match):
        moved_poses(Centroids(), dots((0, 0), (1, 1)), labels, "x", [0])


def test_a_network_without_poses(cnn):
    with pytest.raises(ValueError, match="ConvNet has no class poses"):
        moved_poses(cnn, np.zeros((1, 12, 12, 1), np.float32), np.array([0]), "x", [0])
