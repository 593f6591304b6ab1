"""Schedules over stacks of layers, and routing to convergence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from capsjax.routing import (
    LinearVotes,
    concurrent,
    em_routing,
    fixed_point,
    inverted_attention_routing,
    sequential,
)

normalize = jax.nn.standardize


def layer(seed, children, parents):
    kernel = jax.random.normal(jax.random.key(seed), (children, 2, parents, 2))

    def iterate(below, previous):
        poses = below.reshape(*below.shape[:-1], 2, 2)
        votes = LinearVotes(poses, kernel)
        return inverted_attention_routing(votes, previous, normalize=normalize).poses

    return iterate


INPUTS = jax.random.normal(jax.random.key(9), (3, 5, 4))


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_few_iterations_with_jit_off(num_iterations):
    stack = [layer(0, 5, 4), layer(1, 4, 3)]
    for schedule in (sequential, concurrent):
        expected = schedule(stack, INPUTS, num_iterations=num_iterations)
        with jax.disable_jit():
            found = schedule(stack, INPUTS, num_iterations=num_iterations)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_schedules_step_by_step():
    lower, upper = layer(0, 5, 4), layer(1, 4, 3)
    low_1 = lower(INPUTS, None)
    low_2 = lower(INPUTS, low_1)
    up_1 = upper(low_1, None)
    # Concurrent: the upper layer's second iteration sees the lower one's first.
    expected = {
        concurrent: (low_2, upper(low_1, up_1)),
        sequential: (low_2, upper(low_2, upper(low_2, None))),
    }
    for schedule, states in expected.items():
        found = schedule([lower, upper], INPUTS, num_iterations=2)
        for ours, theirs in zip(found, states, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_iterations", [2, 3])
def test_what_the_top_does_not_see_is_not_computed(num_iterations):
    def square(below, previous):
        return jnp.sin(below @ below) + (0 if previous is None else previous)

    def needed(inputs, level=2, iteration=num_iterations):
        previous = needed(inputs, level, iteration - 1) if iteration > 1 else None
        below = needed(inputs, level - 1, max(iteration - 1, 1)) if level else inputs
        return square(below, previous)

    def top(inputs):
        return concurrent([square] * 3, inputs, num_iterations=num_iterations)[-1]

    def operations(f):
        program = jax.jit(jax.grad(lambda x: f(x).sum())).lower(jnp.eye(4)).compile()
        return program.cost_analysis()["flops"]

    assert operations(top) <= operations(needed)


def problem(seed=0):
    keys = jax.random.split(jax.random.key(seed))
    poses = jax.random.normal(keys[0], (2, 6, 2, 2))
    return poses, jax.random.normal(keys[1], (6, 2, 4, 2))


WEIGHTS = np.sin(np.arange(32)).reshape(2, 4, 4)


def limit(poses, kernel, **options):
    """The fixed point of inverted attention."""
    votes = LinearVotes(poses, kernel)
    return fixed_point(inverted_attention_routing, votes, normalize=normalize, **options)


def assert_gradients_agree(gradient, unrolled):
    expected = jax.jit(jax.grad(unrolled, (0, 1)))(*problem())
    for ours, theirs in zip(gradient, expected, strict=True):
        assert jnp.max(jnp.abs(ours - theirs)) <= 1e-4 * jnp.max(jnp.abs(theirs))


def test_inverted_attention_converges_with_the_gradient_of_the_limit(float64):
    def implicit(poses, kernel):
        solution = limit(poses, kernel, tolerance=1e-9)
        return jnp.sum(WEIGHTS * solution.routed.poses), solution

    def unrolled(poses, kernel):
        def iterate(below, previous):
            votes = LinearVotes(below, kernel)
            return inverted_attention_routing(votes, previous, normalize=normalize).poses

        (last,) = sequential([iterate], poses, num_iterations=400)
        return jnp.sum(WEIGHTS * last)

    arguments = problem()
    gradient, solution = jax.jit(jax.grad(implicit, (0, 1), has_aux=True))(*arguments)
    assert solution.converged
    assert 5 < solution.num_iterations <= 300
    again = inverted_attention_routing(
        LinearVotes(*arguments), solution.routed.poses, normalize=normalize
    )
    np.testing.assert_allclose(again.poses, solution.routed.poses, atol=1e-7)
    assert_gradients_agree(gradient, unrolled)


def test_em_converges_with_the_gradient_of_the_limit(float64):
    rest = (jnp.full((2, 6), 0.8), jnp.zeros(4), jnp.zeros(4))
    options = {"inverse_temperature": 0.01, "variance_floor": 1.0}

    def implicit(poses, kernel):
        votes = LinearVotes(poses, kernel)
        solution = fixed_point(em_routing, votes, *rest, tolerance=1e-9, **options)
        return jnp.sum(WEIGHTS * solution.routed.poses), solution.converged

    def unrolled(poses, kernel):
        routed = em_routing(LinearVotes(poses, kernel), *rest, num_iterations=300, **options)
        return jnp.sum(WEIGHTS * routed.poses)

    gradient, converged = jax.jit(jax.grad(implicit, (0, 1), has_aux=True))(*problem())
    assert converged
    assert_gradients_agree(gradient, unrolled)


def test_second_derivatives_of_em_where_couplings_vanish():
    votes, direction = jax.random.normal(jax.random.key(0), (2, 5, 3, 4))
    rest = (jnp.full(1, 0.5), jnp.zeros(1), jnp.zeros(1))

    def of_limit(votes):
        routed = fixed_point(em_routing, votes, *rest, inverse_temperature=0.01).routed
        return jnp.sum(jnp.sin(routed.poses)), routed.coupling

    def unrolled(votes):
        routed = em_routing(votes, *rest, inverse_temperature=0.01, num_iterations=40)
        return jnp.sum(jnp.sin(routed.poses)), routed.coupling

    def curvature(f):
        gradient = jax.grad(f, has_aux=True)
        _, change, coupling = jax.jit(
            lambda x: jax.jvp(gradient, (x,), (direction,), has_aux=True)
        )(votes)
        assert jnp.min(coupling) < 1e-19
        return change

    np.testing.assert_allclose(curvature(of_limit), curvature(unrolled), rtol=1e-3, atol=1e-4)


def weighted_limit(poses, kernel):
    return jnp.sum(WEIGHTS[0] * limit(poses, kernel, tolerance=1e-5).routed.poses)


kernel_gradient = jax.grad(weighted_limit, 1)


def by_pmap(poses, kernel):
    def on_each(poses, kernel):
        return lax.psum(kernel_gradient(poses, kernel), "data")

    return jax.pmap(on_each, in_axes=(0, None), axis_name="data")(poses[:, None], kernel)[0]


def by_shard_map(poses, kernel):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    specs = (PartitionSpec("data"), PartitionSpec())
    f = jax.shard_map(kernel_gradient, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())
    return jax.jit(f)(poses, kernel)


def on_explicit_axes(poses, kernel):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        divided = jax.device_put(poses, NamedSharding(mesh, PartitionSpec("data")))
        return jax.device_get(jax.jit(kernel_gradient)(divided, kernel))


@pytest.mark.parametrize(
    "by",
    [by_shard_map, *(pytest.param(f, marks=pytest.mark.slow) for f in (by_pmap, on_explicit_axes))],
)
def test_the_gradient_of_a_limit_on_several_devices(by):
    poses, kernel = problem()
    expected = jax.jit(kernel_gradient)(poses, kernel)
    np.testing.assert_allclose(by(poses, kernel), expected, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_a_limit_does_not_depend_on_the_size_of_the_loss():
    arguments = problem()
    expected = jax.jit(kernel_gradient)(*arguments)
    small = jax.jit(jax.grad(lambda *xs: 1e-9 * weighted_limit(*xs), 1))(*arguments)
    np.testing.assert_allclose(1e9 * small, expected, rtol=1e-3, atol=1e-3)


def test_the_gradient_of_a_limit_of_narrow_votes_and_of_none():
    expected = jax.jit(kernel_gradient)(*problem())
    poses, kernel = (x.astype(jnp.bfloat16) for x in problem())
    gradient = jax.jit(kernel_gradient)(poses, kernel)
    assert gradient.dtype == jnp.bfloat16
    assert jnp.max(jnp.abs(gradient - expected)) < 0.1 * jnp.max(jnp.abs(expected))
    np.testing.assert_array_equal(jax.jit(kernel_gradient)(poses[:0], kernel), 0)


def test_the_gradient_is_finite_where_nothing_converged(float64):
    def swinging(kernel):
        # Away from what agrees: two states that lead to one another.
        solution = limit(poses, kernel, scale=-8.0)
        return jnp.sum(WEIGHTS * solution.routed.poses), solution.converged

    poses, kernel = problem()
    gradient, converged = jax.jit(jax.grad(swinging, has_aux=True))(kernel)
    assert not converged
    assert jnp.max(jnp.abs(gradient)) < 100


def test_not_converging_is_reported_not_raised():
    solution = jax.jit(lambda *xs: limit(*xs, max_iterations=2))(*problem())
    assert not solution.converged
    assert solution.num_iterations == 2
    assert jnp.all(jnp.isfinite(solution.routed.poses))
