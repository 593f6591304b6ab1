import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.layers import ConvDecoder, Decoder

SHAPE = (7, 10, 2)
CLASSES = 3


@pytest.fixture(scope="module", params=[Decoder, ConvDecoder])
def decoder(request):
    return request.param(CLASSES, 4, SHAPE, features=(8, 6, 4), rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def poses():
    return jax.random.normal(jax.random.key(0), (2, CLASSES, 4))


def test_any_size_in_the_unit_interval(decoder, poses):
    if isinstance(decoder, ConvDecoder):
        assert decoder.map_shape == (2, 3, 8)  # twice doubled it is 8×12
    image = decoder(100 * poses, jnp.ones((2, CLASSES)))
    chex.assert_shape(image, (2, *SHAPE))
    assert image.min() >= 0
    assert image.max() <= 1


def test_only_masked_classes_are_seen_and_without_a_mask_all(decoder, poses):
    np.testing.assert_array_equal(decoder(poses), decoder(poses, jnp.ones((2, CLASSES))))
    assert not np.allclose(decoder(poses), decoder(poses.at[:, 0].add(1)))
    second = jnp.broadcast_to(jax.nn.one_hot(1, CLASSES), (2, CLASSES))
    seen = decoder(poses, second)
    np.testing.assert_array_equal(seen, decoder(poses.at[:, [0, 2]].set(5.0), second))
    assert not np.allclose(seen, decoder(poses.at[:, 1].add(1), second))


def test_one_reconstruction_for_each_mask(decoder, poses):
    masks = jnp.stack([jnp.eye(CLASSES)] * 2)  # for each image, the three classes in turn
    images = decoder(poses, masks)
    chex.assert_shape(images, (2, CLASSES, *SHAPE))
    for k in range(CLASSES):
        np.testing.assert_allclose(images[:, k], decoder(poses, masks[:, k]), rtol=1e-5, atol=1e-6)


def test_a_convolutional_decoder_hardly_grows_with_the_image():
    def count(side):
        decoder = nnx.eval_shape(
            lambda: ConvDecoder(10, 16, (side, side, 3), features=(8, 8, 8), rngs=nnx.Rngs(0))
        )
        return sum(x.size for x in jax.tree.leaves(nnx.state(decoder, nnx.Param)))

    # Four times the pixels: the dense layer's small map alone has four times the units.
    assert count(16) - count(8) == (160 + 1) * 8 * (16 - 4)
