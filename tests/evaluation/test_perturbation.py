import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.evaluation.perturbation import perturb, reconstruct_perturbed, symmetric_offsets
from capsjax.functional import mask_poses


def test_offsets_of_the_paper():
    offsets = symmetric_offsets()
    assert len(offsets) == 11
    np.testing.assert_allclose(offsets[[0, 1, -1]], [-0.25, -0.2, 0.25], atol=1e-12)
    assert offsets[5] == 0, "the middle is the unchanged pose, exactly"


@pytest.mark.parametrize(("limit", "step"), [(0.25, 0.1), (0.1, 0.2), (0.25, 0.0), (-0.2, 0.1)])
def test_offsets_that_do_not_fit(limit, step):
    with pytest.raises(ValueError, match="positive multiple of step"):
        symmetric_offsets(limit, step)


def test_each_element_moves_alone():
    moved = perturb(jnp.array([1.0, 2.0, 3.0]), jnp.array([-1.0, 0.0]))
    expected = [
        [[0.0, 2.0, 3.0], [1.0, 2.0, 3.0]],
        [[1.0, 1.0, 3.0], [1.0, 2.0, 3.0]],
        [[1.0, 2.0, 2.0], [1.0, 2.0, 3.0]],
    ]
    np.testing.assert_array_equal(moved, expected)


def test_integers_would_not_move():
    with pytest.raises(TypeError, match="poses must have a floating dtype"):
        perturb(jnp.arange(4), symmetric_offsets())


def test_batch_axes_and_vmap_agree():
    poses = jax.random.normal(jax.random.key(0), (2, 5, 4))
    offsets = symmetric_offsets(limit=0.5, step=0.25)
    together = perturb(poses, offsets)
    assert together.shape == (2, 5, 4, 5, 4)
    one_by_one = jax.vmap(jax.vmap(lambda pose: perturb(pose, offsets)))(poses)
    np.testing.assert_array_equal(together, one_by_one)


def show(poses, mask):
    """A decoder whose image is what it sees."""
    return mask_poses(poses, mask).reshape(-1, 3, 2, 1)


def test_the_decoder_sees_the_moved_pose_of_one_class():
    poses = jnp.arange(6.0).reshape(3, 2)
    images = reconstruct_perturbed(show, poses, 1, np.array([-1.0, 0.0, 1.0]))
    assert images.shape == (2, 3, 3, 2, 1)
    np.testing.assert_array_equal(images[:, :, [0, 2]], 0)
    np.testing.assert_array_equal(images[0, :, 1, :, 0], [[1, 3], [2, 3], [3, 3]])
    np.testing.assert_array_equal(images[1, :, 1, :, 0], [[2, 2], [2, 3], [2, 4]])
    # Unmasked, it sees the other poses as they are.
    images = reconstruct_perturbed(show, poses, 1, np.array([-8.0, 8.0]), conditional=False)
    np.testing.assert_array_equal(images[:, :, 0, :, 0], np.broadcast_to([0, 1], (2, 2, 2)))
    np.testing.assert_array_equal(images[:, :, 2, :, 0], np.broadcast_to([4, 5], (2, 2, 2)))
    np.testing.assert_array_equal(images[0, :, 1, :, 0], [[-6, 3], [10, 3]])


@pytest.mark.parametrize("label", [-1, 3])
def test_no_such_class(label):
    with pytest.raises(ValueError, match=f"label must be a class, 0 to 2, got {label}"):
        reconstruct_perturbed(lambda p, m: p, jnp.ones((3, 2)), label, np.array([0.0]))


def test_no_decoder_and_poses_of_several_images():
    with pytest.raises(ValueError, match="this network has none"):
        reconstruct_perturbed(None, jnp.ones((3, 2)), 0, np.array([0.0]))
    with pytest.raises(ValueError, match=r"must be of one image.* got \(1, 3, 2\)"):
        reconstruct_perturbed(lambda p, m: p, jnp.ones((1, 3, 2)), 0, np.array([0.0]))
