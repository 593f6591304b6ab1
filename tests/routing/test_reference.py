"""Every procedure, on every form of votes, against nested loops in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capsjax.routing import (
    LinearVotes,
    attention_routing,
    dynamic_routing,
    em_routing,
    inverted_attention_routing,
    self_attention_routing,
    slot_attention,
)
from tests.routing import reference

# Every size is a new compilation, which takes far longer than the arithmetic.
few = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def problems(draw):
    """Poses [B, I, A, X] and kernel [I or 1, X, J, Y], and the votes they make."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    i, j = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    a, x, y = draw(st.sampled_from([(1, 3, 4), (1, 8, 2), (2, 2, 2), (4, 4, 4), (2, 3, 1)]))
    shared = draw(st.booleans())
    poses = rng.normal(size=(2, i, a, x))
    kernel = rng.normal(size=(1 if shared else i, x, j, y))
    votes = np.stack([reference.linear_votes(p, kernel) for p in poses])
    return rng, poses, kernel, votes


def both_forms(dtype, poses, kernel, votes):
    """The votes as an array and as an operator, in `dtype`."""
    linear = LinearVotes(jnp.asarray(poses, dtype), jnp.asarray(kernel, dtype))
    return jnp.asarray(votes, dtype), linear


def assert_routed(dtype, routed, expected, magnified=1):
    """All that is expected of each example, but for rounding that is `magnified`."""
    tolerance = magnified * (1e-5 if dtype == jnp.float32 else 1e-11)
    for result, loops in zip(routed, map(np.stack, zip(*expected, strict=True)), strict=False):
        assert result.dtype == dtype
        scale = np.max(np.abs(loops)) + 1e-3
        assert np.max(np.abs(result - loops)) <= tolerance * scale


@few
@given(problems(), st.integers(1, 4), st.sampled_from([1.0, 0.3]), st.booleans(), st.booleans())
def test_dynamic(dtype, problem, iterations, rate, leaky, prior):
    rng, poses, kernel, votes = problem
    _, children, parents, size = votes.shape
    logits = rng.normal(size=(children, parents)) if prior else np.zeros((children, parents))
    bias = rng.normal(size=(parents, size)) if prior else np.zeros((parents, size))
    expected = [reference.dynamic(v, iterations, logits, bias, rate, leaky) for v in votes]
    for form in both_forms(dtype, poses, kernel, votes):
        routed = dynamic_routing(
            form,
            num_iterations=iterations,
            logits=jnp.asarray(logits, dtype) if prior else None,
            bias=jnp.asarray(bias, dtype) if prior else None,
            update_rate=rate,
            leaky=leaky,
        )
        assert_routed(dtype, routed, expected)


@few
@given(problems(), st.integers(1, 3), st.sampled_from([None, 1.0]))
def test_inverted_attention(dtype, problem, iterations, scale):
    _, poses, kernel, votes = problem
    expected = [reference.inverted_attention(v, iterations, scale) for v in votes]
    for form in both_forms(dtype, poses, kernel, votes):
        routed = None
        for _ in range(iterations):
            routed = inverted_attention_routing(
                form,
                None if routed is None else routed.poses,
                scale=scale,
                normalize=partial(jax.nn.standardize, epsilon=reference.EPSILON),
            )
        assert_routed(dtype, routed, expected)


@few
@given(problems(), st.integers(1, 3), st.sampled_from([1e-2, 1.0]))
def test_em(dtype, problem, iterations, floor):
    rng, poses, kernel, votes = problem
    _, children, parents, _ = votes.shape
    activations = rng.uniform(0.1, 1, size=(2, children))
    betas = rng.normal(size=(2, parents))
    expected = [
        reference.em(v, a, *betas, iterations, floor)
        for v, a in zip(votes, activations, strict=True)
    ]
    for form in both_forms(dtype, poses, kernel, votes):
        routed = em_routing(
            form,
            jnp.asarray(activations, dtype),
            *jnp.asarray(betas, dtype),
            num_iterations=iterations,
            variance_floor=floor,
        )
        # 1/floor magnifies the rounding of votes in the exponent of the E-step.
        assert_routed(dtype, routed, expected, magnified=1 / min(1, 10 * floor))


@few
@given(problems(), st.booleans())
def test_self_attention(dtype, problem, has_prior):
    rng, poses, kernel, votes = problem
    prior = has_prior * rng.normal(size=votes.shape[1:3])
    expected = [reference.self_attention(v, prior) for v in votes]
    for form in both_forms(dtype, poses, kernel, votes):
        routed = self_attention_routing(form, jnp.asarray(prior, dtype) if has_prior else None)
        assert_routed(dtype, routed, expected)


@few
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_slot_attention(dtype, seed, size, slots, masked):
    rng = np.random.default_rng(seed)
    shapes = (2, 5, size), (2, slots, 3), (size, 3), (size, 4)
    arrays = [rng.normal(size=shape) for shape in shapes]
    mask = rng.uniform(size=(2, 5)) if masked else np.ones((2, 5))
    routed = slot_attention(
        *(jnp.asarray(x, dtype) for x in arrays), mask=jnp.asarray(mask, dtype) if masked else None
    )
    inputs, queries, *kernels = arrays
    expected = [
        reference.slot_attention(x, q, *kernels, m)
        for x, q, m in zip(inputs, queries, mask, strict=True)
    ]
    assert_routed(dtype, routed, expected)


@few
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 4))
def test_attention(dtype, seed, channels, size):
    rng = np.random.default_rng(seed)
    transformed = rng.normal(size=(2, channels, size))
    kernel = rng.normal(size=(size, channels, channels))
    routed = attention_routing(jnp.asarray(transformed, dtype), jnp.asarray(kernel, dtype))
    expected = [reference.attention(s, kernel) for s in transformed]
    assert_routed(dtype, routed, expected)


def test_em_by_hand(dtype):
    # Parent 1: votes ±(1, 0), μ = 0, σ² = (1, 0) + 1; cost = ½ log 2, a_1 = 1/(1 + √2).
    # Parent 2: both votes (2, 2), σ² = (0, 0) + 1; cost = 0, a_2 = ½.
    # E: the logits of parent 1 exceed those of parent 2 by
    #    log 0.4142136 − ¼ − ½ log 2 − log ½ = −0.7848000, R_i1 = 0.3132863.
    # M: ΣR_i1 = 0.6265726, cost_1 = 0.2171537, a_1 = 0.4459239.
    votes = jnp.asarray([[[1, 0], [2, 2]], [[-1, 0], [2, 2]]], dtype)
    betas = jnp.zeros((2, 2), dtype)
    options = {"inverse_temperature": 1.0, "variance_floor": 1.0}
    for iterations, coupling, active in ((1, 0.5, 0.4142136), (2, 0.3132863, 0.4459239)):
        routed = em_routing(votes, jnp.ones(2, dtype), *betas, num_iterations=iterations, **options)
        np.testing.assert_allclose(routed.poses, [[0, 0], [2, 2]], atol=1e-6)
        np.testing.assert_allclose(routed.coupling[:, 0], [coupling] * 2, atol=1e-6)
        np.testing.assert_allclose(routed.activations, [active, 0.5], atol=1e-6)


def check_gradients(f, *arguments, order=1, modes=("fwd", "rev")):
    jax.test_util.check_grads(jax.jit(f), arguments, order, modes=modes, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "shared"), [(1, False), pytest.param(2, False, marks=pytest.mark.slow), (1, True)]
)
def test_gradients_against_finite_differences(float64, a, shared):
    keys = jax.random.split(jax.random.key(0), 3)
    poses = jax.random.normal(keys[0], (2, 3, a, 2))
    kernel = jax.random.normal(keys[1], (1 if shared else 3, 2, 3, 2))
    activations = jax.random.uniform(keys[2], (2, 3))
    betas = jnp.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])

    def dynamic(poses, kernel):
        return dynamic_routing(LinearVotes(poses, kernel), update_rate=0.5)[:2]

    def inverted(poses, kernel):
        # A LayerNorm of two numbers is nearly a step, too steep for finite differences.
        votes = LinearVotes(poses, kernel)
        first = inverted_attention_routing(votes, normalize=jnp.tanh)
        return inverted_attention_routing(votes, first.poses, normalize=jnp.tanh)[:2]

    def self_attention(poses, kernel, prior):
        return self_attention_routing(LinearVotes(poses, kernel), prior)[:2]

    def em(poses, kernel, activations, betas):
        votes = LinearVotes(poses, kernel)
        return em_routing(votes, activations, *betas, num_iterations=2, variance_floor=0.1)

    check_gradients(dynamic, poses, kernel)
    check_gradients(inverted, poses, kernel)
    check_gradients(self_attention, poses, kernel, jnp.array([[0.1, -0.2, 0.3]]))
    check_gradients(em, poses, kernel, activations, betas)


def test_the_gradient_of_a_coupling_that_is_zero(float64):
    votes = jax.random.normal(jax.random.key(0), (3, 2, 4))
    coupling = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])

    def em(coupling):
        betas = jnp.ones((2, 2))
        routed = em_routing(votes, jnp.ones(3), *betas, num_iterations=1, coupling=coupling)
        return routed.poses[0, 0]

    near = jax.grad(em)(coupling + 1e-9)
    np.testing.assert_allclose(jax.grad(em)(coupling), near, rtol=1e-6)


def test_slot_attention_gradient_against_finite_differences(float64):
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = (2, 5, 3), (2, 4, 6), (3, 6), (3, 2)
    arrays = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=False)]
    mask = jax.random.uniform(keys[4], (2, 5), minval=0.1, maxval=0.9)

    def route(mask, *arrays):
        return slot_attention(*arrays, mask=mask)[:2]

    check_gradients(route, mask, *arrays, order=2, modes=["rev"])


def test_attention_gradient_against_finite_differences(float64):
    keys = jax.random.split(jax.random.key(0))
    transformed, kernel = (
        jax.random.normal(key, (2, 3, n)) for key, n in zip(keys, (2, 3), strict=True)
    )
    check_gradients(attention_routing, transformed, kernel)
