import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.layers import ResidualBlock, ResNetBackbone, SimpleBackbone
from capsjax.layers.backbones import batch_norm
from capsjax.training.state import num_parameters, split

STAGES = [(64, 3, 1), (128, 4, 2)]


def test_published_size_and_shape():
    backbone = nnx.eval_shape(lambda: ResNetBackbone(3, STAGES, rngs=nnx.Rngs(0)))
    assert num_parameters(backbone) == 1_340_224
    backbone.eval()
    out = nnx.eval_shape(lambda model, x: model(x), backbone, jnp.zeros((2, 32, 31, 3)))
    assert out.shape == (2, 16, 16, 128)
    assert backbone.out_features == 128


def test_batch_normalisation_keeps_the_type():
    own, flaxs = batch_norm(4, rngs=nnx.Rngs(0)), nnx.BatchNorm(4, momentum=0.9, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (8, 3, 3, 4))
    np.testing.assert_array_equal(own(x), flaxs(x))
    graphdef, params, rest = split(own)
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    own = nnx.merge(graphdef, narrow, rest, copy=True)
    assert own(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    assert own.mean[...].dtype == jnp.float32


@pytest.mark.parametrize("size", [7, 8])
def test_simple_backbone_halves_rounding_up(size):
    backbone = SimpleBackbone(3, 5, rngs=nnx.Rngs(0))
    out = backbone(jax.random.normal(jax.random.key(0), (2, size, size, 3)))
    chex.assert_shape(out, (2, 4, 4, 5))
    assert out.min() == 0


@pytest.mark.parametrize(("features", "strides", "shortcut"), [(4, 1, False), (6, 2, True)])
def test_residual_block(features, strides, shortcut):
    block = ResidualBlock(4, features, strides, rngs=nnx.Rngs(0))
    block.eval()
    assert (block.shortcut is not None) == shortcut
    x = jax.random.normal(jax.random.key(0), (2, 6, 6, 4))
    # A block whose second convolution gives nothing is its shortcut.
    block.second.norm.scale[...] = jnp.zeros(features)
    expected = block.shortcut(x) if shortcut else x
    np.testing.assert_allclose(block(x), nnx.relu(expected), rtol=1e-5)
