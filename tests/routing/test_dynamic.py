"""Dynamic and uniform routing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.routing import LinearVotes, dynamic_routing, uniform_routing

VOTES = jax.random.normal(jax.random.key(0), (2, 5, 4, 3))


def test_uniform_is_dynamic_with_one_iteration():
    bias = jnp.linspace(-1, 1, 12).reshape(4, 3)
    one = dynamic_routing(VOTES, num_iterations=1, bias=bias)
    uniform = uniform_routing(VOTES, bias=bias)
    np.testing.assert_allclose(one.poses, uniform.poses, rtol=1e-6)
    np.testing.assert_allclose(one.coupling, uniform.coupling)


def test_stop_gradient_keeps_values_and_drops_the_couplings_gradient():
    def norm(v, **kwargs):
        return jnp.sum(dynamic_routing(v, **kwargs).poses[..., 0])

    coupling = dynamic_routing(VOTES).coupling

    def constant(v):
        s = jnp.einsum("bij,bijd->bjd", coupling, v)
        return jnp.sum(uniform_routing(4 * s[:, None]).poses[..., 0])

    value, gradient = jax.value_and_grad(norm)(VOTES, stop_gradient=True)
    np.testing.assert_allclose(value, norm(VOTES), rtol=1e-6)
    np.testing.assert_allclose(gradient, jax.grad(constant)(VOTES), rtol=1e-4, atol=1e-6)


def test_linear_votes_route_as_dense_ones():
    keys = jax.random.split(jax.random.key(1))
    votes = LinearVotes(
        jax.random.normal(keys[0], (2, 5, 1, 8)), jax.random.normal(keys[1], (5, 8, 4, 6))
    )
    for ours, dense in zip(
        dynamic_routing(votes)[:2], dynamic_routing(votes.dense())[:2], strict=True
    ):
        np.testing.assert_allclose(ours, dense, rtol=1e-4, atol=1e-5)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="num_iterations must be at least 1, got 0"):
        dynamic_routing(VOTES, num_iterations=0)
    with pytest.raises(ValueError, match=r"update_rate .* \(0, 1\], got 0"):
        dynamic_routing(VOTES, update_rate=0)
    with pytest.raises(ValueError, match="bias must broadcast"):
        dynamic_routing(VOTES, bias=jnp.zeros((3, 3)))
    with pytest.raises(ValueError, match="logits must broadcast"):
        dynamic_routing(VOTES, logits=jnp.zeros((4, 5)))
    with pytest.raises(TypeError, match="votes must be an array"):
        dynamic_routing("votes")


def test_a_traced_update_rate_is_like_a_number():
    votes = jax.random.normal(jax.random.key(0), (6, 4, 3))
    expected = dynamic_routing(votes, update_rate=0.3)
    traced = jax.jit(lambda rate: dynamic_routing(votes, update_rate=rate))(0.3)
    np.testing.assert_allclose(traced.poses, expected.poses, rtol=1e-5, atol=1e-6)
