from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.functional import safe_norm, squash
from capsjax.layers import ConvCapsules, DenseCapsules, PrimaryCapsules
from capsjax.routing import dynamic_routing, uniform_routing


def test_primary_capsules_group_the_channels_of_a_position():
    layer = PrimaryCapsules(3, 4, 8, kernel_size=3, strides=2, rngs=nnx.Rngs(0))
    features = jax.random.normal(jax.random.key(0), (2, 7, 7, 3))
    poses = layer(features)
    chex.assert_shape(poses, (2, 3, 3, 4, 8))
    # The first capsule of a position is the first eight channels there.
    expected = squash(layer.conv(features)[:, 0, 1, :8])
    np.testing.assert_allclose(poses[:, 0, 1, 0], expected, rtol=1e-5, atol=1e-6)


def test_primary_activation_is_any_function_or_module():
    features = jax.random.normal(jax.random.key(0), (2, 4, 4, 3))

    def poses(activation):
        options = {"kernel_size": 1, "strides": 1, "use_bias": False, "activation": activation}
        return PrimaryCapsules(3, 2, 9, rngs=nnx.Rngs(0), **options)(features)

    plain = poses(lambda x: x)
    normalised = poses(nnx.LayerNorm(9, rngs=nnx.Rngs(0)))
    np.testing.assert_allclose(normalised, jax.nn.standardize(plain, epsilon=1e-6), atol=1e-5)


def test_layers_of_equal_partials_are_compiled_once():
    first, second = (DenseCapsules(4, 2, 3, 2, rngs=nnx.Rngs(0)) for _ in range(2))
    for layer in (first, second):
        layer.routing = partial(dynamic_routing, activation=partial(jax.nn.standardize, axis=-1))
    assert nnx.graphdef(first) == nnx.graphdef(second)
    held = partial(dynamic_routing, logits=jnp.zeros((4, 3)))  # which cannot be compared
    assert DenseCapsules(4, 2, 3, 2, routing=held, rngs=nnx.Rngs(0)).routing is held


def test_dense_capsules_vote_linearly():
    layer = DenseCapsules(6, 4, 3, 5, use_bias=True, rngs=nnx.Rngs(0))
    layer.kernel[...] = layer.kernel[...].at[:].set(0)  # no votes: the bias alone remains
    routed = layer(jnp.ones((2, 6, 4)))
    chex.assert_shape(routed.poses, (2, 3, 5))
    np.testing.assert_allclose(routed.poses[0, 0], squash(jnp.full(5, 0.1)), rtol=1e-6)
    np.testing.assert_allclose(routed.coupling, 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", ["vector", "matrix"])
def test_dense_votes_in_every_form(form, shared):
    layer = DenseCapsules(6, 9, 3, 9, form=form, shared=shared, rngs=nnx.Rngs(0))
    side = 3 if form == "matrix" else 9
    chex.assert_shape(layer.kernel, (1 if shared else 6, side, 3, side))
    poses = jax.random.normal(jax.random.key(0), (2, 6, 9))
    votes = layer.votes(poses).dense()
    kernel = jnp.broadcast_to(layer.kernel[...], (6, side, 3, side))
    for i, j in [(0, 0), (5, 2)]:
        expected = poses[:, i].reshape(2, -1, side) @ kernel[i, :, j]
        np.testing.assert_allclose(votes[:, i, j], expected.reshape(2, 9), rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(layer(poses), layer.routing(votes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["vector", "matrix"])
def test_sums_start_at_length_one(form):
    layer = DenseCapsules(512, 16, 10, 16, form=form, routing=uniform_routing, rngs=nnx.Rngs(0))
    poses = jax.random.normal(jax.random.key(0), (8, 512, 16)) / 4
    lengths = safe_norm(layer.votes(poses).total() / 10)
    assert 0.7 < lengths.mean() < 1.3


@pytest.mark.parametrize("form", ["vector", "matrix"])
@pytest.mark.parametrize(
    ("strides", "padding", "grid"), [(2, "VALID", (2, 2)), (1, "SAME", (6, 5))]
)
def test_conv_capsules_are_dense_capsules_of_each_window(form, strides, padding, grid):
    layer = ConvCapsules(
        2, 4, 3, 4, kernel_size=3, strides=strides, padding=padding, form=form, rngs=nnx.Rngs(0)
    )
    poses = jax.random.normal(jax.random.key(0), (2, 6, 5, 2, 4))
    routed = layer(poses)
    chex.assert_shape(routed.poses, (2, *grid, 3, 4))
    chex.assert_shape(routed.coupling, (2, *grid, 18, 3))
    dense = DenseCapsules(18, 4, 3, 4, form=form, rngs=nnx.Rngs(0))
    dense.kernel[...] = layer.kernel[...]
    # With SAME a window is centred on its position.
    at = (0, 0) if padding == "VALID" else (1, 1)
    window = poses[:, :3, :3].reshape(2, 18, 4)
    expected = dense(window).poses
    np.testing.assert_allclose(routed.poses[:, at[0], at[1]], expected, rtol=1e-4, atol=1e-5)
