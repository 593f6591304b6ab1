"""Dynamic and uniform routing."""

import jax
import jax.numpy as jnp
import numpy as np

from capsjax.routing import dynamic_routing, uniform_routing

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


def test_a_traced_update_rate_is_like_a_number():
    votes = jax.random.normal(jax.random.key(0), (6, 4, 3))
    expected = dynamic_routing(votes, update_rate=0.3)
    traced = jax.jit(lambda rate: dynamic_routing(votes, update_rate=rate))(0.3)
    np.testing.assert_allclose(traced.poses, expected.poses, rtol=1e-5, atol=1e-6)
