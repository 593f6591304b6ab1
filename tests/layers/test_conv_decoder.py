import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.layers import ConvDecoder


@pytest.fixture(scope="module")
def decoder():
    return ConvDecoder(3, 4, (7, 10, 2), features=(8, 6, 4), rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def poses():
    return jax.random.normal(jax.random.key(0), (2, 3, 4))


def test_any_size_in_the_unit_interval(decoder, poses):
    assert decoder.map_shape == (2, 3, 8)  # twice doubled it is 8×12
    image = decoder(100 * poses, jnp.ones((2, 3)))
    chex.assert_shape(image, (2, 7, 10, 2))
    assert image.min() >= 0
    assert image.max() <= 1


def test_masks_are_those_of_the_dense_decoder(decoder, poses):
    np.testing.assert_array_equal(decoder(poses), decoder(poses, jnp.ones((2, 3))))
    one = jnp.broadcast_to(jnp.array([0.0, 1.0, 0.0]), (2, 3))
    seen = decoder(poses, one)
    np.testing.assert_array_equal(seen, decoder(poses.at[:, [0, 2]].set(5.0), one))
    assert not np.allclose(seen, decoder(poses.at[:, 1].add(1), one))
    both = decoder(poses, jnp.stack([one, jnp.ones((2, 3))], axis=1))
    chex.assert_shape(both, (2, 2, 7, 10, 2))
    np.testing.assert_allclose(both[:, 0], seen, atol=1e-6)


def test_it_hardly_grows_with_the_image():
    def count(side):
        decoder = nnx.eval_shape(
            lambda: ConvDecoder(10, 16, (side, side, 3), features=(8, 8, 8), rngs=nnx.Rngs(0))
        )
        return sum(x.size for x in jax.tree.leaves(nnx.state(decoder, nnx.Param)))

    # Four times the pixels: the dense layer's small map alone has four times the units.
    assert count(16) - count(8) == (160 + 1) * 8 * (16 - 4)
