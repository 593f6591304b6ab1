import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.layers import ConvDecoder, Decoder


@pytest.fixture(scope="module")
def decoder():
    return Decoder(3, 4, (6, 5, 2), features=(8, 8), rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def poses():
    return jax.random.normal(jax.random.key(0), (2, 3, 4))


def test_pixels_are_in_the_unit_interval(decoder, poses):
    image = decoder(100 * poses, jnp.ones((2, 3)))
    chex.assert_shape(image, (2, 6, 5, 2))
    assert image.min() >= 0
    assert image.max() <= 1


def test_without_a_mask_all_poses_are_seen(decoder, poses):
    np.testing.assert_array_equal(decoder(poses), decoder(poses, jnp.ones((2, 3))))
    assert not np.allclose(decoder(poses), decoder(poses.at[:, 0].add(1)))


def test_one_reconstruction_for_each_mask(decoder, poses):
    masks = jnp.stack([jnp.eye(3), jnp.eye(3)])  # for each image, the three classes in turn
    images = decoder(poses, masks)
    chex.assert_shape(images, (2, 3, 6, 5, 2))
    for k in range(3):
        np.testing.assert_allclose(images[:, k], decoder(poses, masks[:, k]), rtol=1e-5, atol=1e-6)


def test_class_numbers_are_no_mask(decoder, poses):
    with pytest.raises(ValueError, match=r"got shape \(3,\); for class numbers .*one_hot"):
        decoder(poses, jnp.array([0, 2, 1]))  # as many as there are classes: it would broadcast


@pytest.mark.parametrize("kind", [Decoder, ConvDecoder])
def test_poses_and_images_of_other_axes_are_refused(kind):
    decoder = kind(3, 4, (5, 6, 1), features=(7,), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="must be num_classes = 3 and pose_size = 4, got shape"):
        decoder(jnp.zeros((2, 4, 3)))
    with pytest.raises(ValueError, match=r"must be \(height, width, channels\), got \(5, 6\)"):
        kind(3, 4, (5, 6), features=(7,), rngs=nnx.Rngs(0))
