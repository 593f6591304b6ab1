import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from capsjax.functional import exponential_squash
from capsjax.layers import DepthwiseCapsules
from tests.models import building

NAME = "efficient_capsnet_mnist"


@pytest.fixture(scope="module")
def model():
    model = building.build(NAME, (28, 28, 1), 10, width=1 / 4)
    model.eval()
    return model


def test_output(model):
    images = jax.random.uniform(jax.random.key(0), (3, 28, 28, 1))
    output = building.apply(model, images, capture=True)
    shapes = {name: features.shape[1:] for name, features in output.features.items()}
    assert shapes == {"conv": (9, 9, 32), "primary": (4, 8), "classes": (10, 16)}
    chex.assert_shape(output.reconstruction, (3, 28, 28, 1))
    chex.assert_shape(output.routed["classes"].coupling, (3, 4, 10))
    np.testing.assert_allclose(output.scores, np.linalg.norm(output.poses, axis=-1), rtol=1e-5)
    # Without a learned prior a child divides itself.
    np.testing.assert_allclose(output.routed["classes"].coupling.sum(-1), 1, rtol=1e-5)


def test_depthwise_capsules_are_a_grouped_convolution():
    layer = DepthwiseCapsules(6, 3, 4, rngs=nnx.Rngs(0))
    layer.bias[...] = jnp.arange(6.0)
    maps = jax.random.normal(jax.random.key(1), (2, 5, 4, 6))

    def convolution(layer, maps):
        sums = lax.conv_general_dilated(
            maps[:, :4],
            layer.kernel[...],
            (1, 1),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=6,
        )
        return exponential_squash((sums + layer.bias[...]).reshape(2, 2, 3))

    def loss(function, layer, maps):
        return jnp.sum(function(layer, maps) * jnp.arange(12.0).reshape(2, 2, 3))

    chex.assert_trees_all_close(layer(maps), convolution(layer, maps), rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(layer(maps[:, None])[:, 0], layer(maps))
    ours, theirs = (
        nnx.grad(lambda layer, maps, f=f: loss(f, layer, maps), argnums=(0, 1))(layer, maps)
        for f in (lambda layer, maps: layer(maps), convolution)
    )
    chex.assert_trees_all_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "side", "message"),
    [
        ("multimnist", 64, r"primary_kernel 5 sees a corner of a map of \(13, 13\)"),
        ("smallnorb", 20, "instance normalization of a 1×1 map"),
    ],
)
def test_images_that_it_would_not_see(network, side, message):
    with pytest.raises(ValueError, match=message):
        building.build(f"efficient_capsnet_{network}", (side, side, 1), 10, width=1 / 32)
