"""Calls of the library with numbers at the ends of their types, wrong types and empty batches."""

import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax import functional, losses, models, routing
from capsjax.functional import safe_norm

RNG = np.random.default_rng(0)
VOTES = jnp.asarray(RNG.normal(size=(6, 4, 3)), jnp.float32)


@pytest.mark.parametrize("procedure", [routing.dynamic_routing, routing.uniform_routing])
@pytest.mark.parametrize("scale", [1e19, 1e25, 1e37])
def test_routing_of_long_votes(procedure, scale):
    poses, pullback = jax.vjp(lambda votes: procedure(votes).poses, scale * VOTES)
    lengths = safe_norm(poses)  # 0 of a parent that no child has chosen
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-6)
    assert lengths.any()
    assert np.isfinite(pullback(jnp.ones_like(poses))[0]).all()


def _gradient_of_fixed_point(votes):
    def total(votes):
        found = routing.fixed_point(
            routing.inverted_attention_routing, votes, normalize=jax.nn.standardize
        )
        return (found.routed.poses**3).sum()

    return jax.grad(total)(votes)


@pytest.mark.slow
def test_the_gradient_of_a_fixed_point_of_float32_votes_under_x64():
    expected = _gradient_of_fixed_point(VOTES)
    with jax.enable_x64(True):
        found = _gradient_of_fixed_point(jnp.asarray(VOTES))
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        wide = _gradient_of_fixed_point(jnp.asarray(VOTES, jnp.float64))
        np.testing.assert_allclose(found, wide, rtol=1e-3, atol=1e-4)


def test_wider_options_do_not_widen_the_votes_under_x64():
    votes = RNG.normal(size=(5, 3, 4)).astype(np.float32)
    ones, zeros = np.ones(5, np.float32), np.zeros(3, np.float32)
    with jax.enable_x64(True):
        soft = routing.dynamic_routing(votes, update_rate=np.float64(0.5))
        floor = np.float64(1e-4)
        floored = routing.em_routing(votes, ones, zeros, zeros, variance_floor=floor)
    assert soft.poses.dtype == floored.poses.dtype == np.float32


ROW = [0.5, 0.5]


@pytest.mark.parametrize(
    "call",
    [
        lambda: functional.mask_poses([ROW], jnp.ones(1)),
        lambda: functional.normalize([[ROW]], (0.5, 0.5), (1.0, 1.0)),
        lambda: losses.margin_loss(ROW, ROW),
        lambda: losses.reconstruction_loss(ROW, ROW),
        lambda: routing.attention_routing([ROW], jnp.ones((2, 1, 1))),
    ],
)
def test_lists_are_no_arrays(call):
    with pytest.raises(TypeError, match="must be an array"):
        call()


@pytest.mark.parametrize("name", ["sabour2017_capsnet", "tsai2020_cifar10_simple"])
def test_empty_batches_go_through_whole_networks(name):
    shape = models.lookup(name).input_shape
    make = nnx.eval_shape(lambda: models.create(name, shape, 10, rngs=nnx.Rngs(0), width=1 / 32))
    graphdef, state = nnx.split(make)

    def call(state, images):
        model = nnx.merge(graphdef, state)
        model.eval()
        return model(images, mask=jnp.zeros((len(images), 10)), capture=True)

    for n in (0, 2):
        images = jax.ShapeDtypeStruct((n, *shape), jnp.float32)
        assert jax.eval_shape(call, state, images).scores.shape == (n, 10)
