"""What must hold whatever the numbers: symmetries, sums, limits, and the same result every way."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from capsjax.functional import squash
from capsjax.routing import (
    DenseVotes,
    LinearVotes,
    attention_routing,
    blocked_vmap,
    dynamic_routing,
    em_routing,
    inverted_attention_routing,
    uniform_routing,
)

B, I, J, D = 5, 6, 4, 4  # noqa: E741


def dynamic(votes):
    return dynamic_routing(votes, num_iterations=3)


def soft(votes):
    return dynamic_routing(votes, num_iterations=3, update_rate=0.2, leaky=True)


def inverted(votes):
    first = inverted_attention_routing(votes, normalize=jax.nn.standardize)
    return inverted_attention_routing(votes, first.poses, normalize=jax.nn.standardize)


def em(votes):
    activations = jnp.full(I, 0.7)
    return em_routing(votes, activations, jnp.zeros(J), jnp.zeros(J), num_iterations=2)


PROCEDURES = [uniform_routing, dynamic, soft, inverted, em]
each_procedure = pytest.mark.parametrize("procedure", PROCEDURES, ids=lambda f: f.__name__)


def random_votes(scale=1.0, dtype=jnp.float32):
    return (scale * jax.random.normal(jax.random.key(0), (B, I, J, D))).astype(dtype)


def random_linear(dtype=jnp.float32, scale=1.0):
    keys = jax.random.split(jax.random.key(1))
    poses = scale * jax.random.normal(keys[0], (B, I, 2, 2))
    return LinearVotes(poses.astype(dtype), jax.random.normal(keys[1], (I, 2, J, 2), dtype))


def assert_same(ours, theirs, tolerance=1e-5):
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@each_procedure
def test_permutations_of_children_and_parents(procedure):
    votes = random_votes()
    children, parents = np.random.default_rng(0).permutation(I), np.array([2, 0, 3, 1])
    routed = jax.jit(procedure)(votes)
    permuted = jax.jit(procedure)(votes[:, children][:, :, parents])
    assert_same(permuted.poses, routed.poses[:, parents])
    assert_same(permuted.coupling, routed.coupling[:, children][:, :, parents])


def test_permutation_of_attention_channels():
    keys = jax.random.split(jax.random.key(0))
    transformed = jax.random.normal(keys[0], (B, I, D))
    kernel = jax.random.normal(keys[1], (D, I, I))
    order = np.random.default_rng(0).permutation(I)
    routed = attention_routing(transformed, kernel)
    permuted = attention_routing(transformed[:, order], kernel[:, order][:, :, order])
    assert_same(permuted.poses, routed.poses)
    assert_same(permuted.coupling, routed.coupling[:, order])
    assert_same(routed.coupling.sum(-1), np.ones(B))


@each_procedure
def test_couplings_are_shares(procedure):
    coupling = jax.jit(procedure)(random_votes()).coupling
    assert jnp.all(coupling >= 0)
    if procedure is soft:
        assert jnp.all(coupling.sum(-1) < 1)  # leaky: a share belongs to no parent
    else:
        assert_same(coupling.sum(-1), np.ones((B, I)))


def test_uniform_routing_is_the_squashed_mean_of_a_child():
    votes, bias = random_votes(), jnp.linspace(-1, 1, J * D).reshape(J, D)
    routed = uniform_routing(votes, bias=bias)
    np.testing.assert_allclose(routed.poses, squash(votes.sum(-3) / J + bias), rtol=1e-5)
    np.testing.assert_array_equal(routed.coupling, np.full((B, I, J), np.float32(1 / J)))


def test_stop_gradient_keeps_values_and_drops_the_couplings_gradient():
    votes = random_votes()

    def norm(v, **kwargs):
        return jnp.sum(dynamic_routing(v, **kwargs).poses[..., 0])

    coupling = dynamic_routing(votes).coupling

    def constant(v):
        s = jnp.einsum("bij,bijd->bjd", coupling, v)
        return jnp.sum(uniform_routing(4 * s[:, None]).poses[..., 0])

    value, gradient = jax.value_and_grad(norm)(votes, stop_gradient=True)
    np.testing.assert_allclose(value, norm(votes), rtol=1e-6)
    np.testing.assert_allclose(gradient, jax.grad(constant)(votes), rtol=1e-4, atol=1e-6)


def test_a_traced_update_rate_is_like_a_number():
    votes = jax.random.normal(jax.random.key(0), (6, 4, 3))
    expected = dynamic_routing(votes, update_rate=0.3)
    traced = jax.jit(lambda rate: dynamic_routing(votes, update_rate=rate))(0.3)
    np.testing.assert_allclose(traced.poses, expected.poses, rtol=1e-5, atol=1e-6)


def test_em_finds_clusters():
    # Two parents, started slightly apart, and two clouds of votes on which both agree.
    rng = np.random.default_rng(0)
    centres = np.array([[3.0, -3.0], [-3.0, 3.0]])
    label = np.arange(40) % 2
    votes = centres[label] + 0.1 * rng.normal(size=(40, 2))
    votes = jnp.asarray(np.stack([votes, votes], axis=1), jnp.float32)
    start = jnp.where(jnp.arange(40)[:, None] % 2 == jnp.arange(2), 0.6, 0.4)
    arguments = votes, jnp.ones(40), jnp.zeros(2), jnp.zeros(2)
    options = {"num_iterations": 6, "inverse_temperature": 0.01}
    routed = em_routing(*arguments, coupling=start, **options)
    np.testing.assert_allclose(routed.poses, centres, atol=0.1)
    np.testing.assert_array_equal(np.argmax(routed.coupling, -1), label)


def test_em_coupling_is_broadcast():
    votes = jax.random.normal(jax.random.key(0), (5, 4, 3))
    arguments = votes, jnp.ones(5), jnp.zeros(4), jnp.zeros(4)
    expected = em_routing(*arguments).poses
    for shape in ((4,), (1, 4), (5, 1), (5, 4)):
        routed = em_routing(*arguments, coupling=jnp.full(shape, 0.25))
        np.testing.assert_allclose(routed.poses, expected, rtol=1e-5)


class FourMethods:
    """A stranger's operator: no pytree, no scatter, no distance."""

    def __init__(self, votes):
        self.votes = DenseVotes(votes)
        self.combine, self.agreement = self.votes.combine, self.votes.agreement
        self.total, self.dense = self.votes.total, self.votes.dense
        self.shape = votes.shape


@each_procedure
def test_own_votes_class(procedure):
    votes = random_votes()
    assert_same(procedure(FourMethods(votes)), procedure(votes))


@pytest.mark.parametrize("procedure", [dynamic, inverted, em], ids=lambda f: f.__name__)
def test_every_way_of_calling_gives_the_same(procedure):
    votes = random_linear()

    def route_one(poses):
        return procedure(LinearVotes(poses, votes.kernel))

    whole = jax.jit(procedure)(votes)
    assert_same(jax.vmap(route_one)(votes.poses), whole)
    for block_size in (2, 7):
        assert_same(jax.jit(blocked_vmap(route_one, block_size))(votes.poses), whole)
    if procedure is inverted:
        loop = [route_one(pose) for pose in votes.poses]
        assert_same(jax.tree.map(lambda *x: jnp.stack(x), *loop), whole)

    def loss(mapped, poses, kernel):
        def route_one(x):
            return procedure(LinearVotes(x, kernel)).poses

        poses = mapped(route_one)(poses) if mapped else procedure(LinearVotes(poses, kernel)).poses
        return jnp.sum(jnp.sin(jnp.arange(poses.size)).reshape(poses.shape) * poses)

    def gradient(mapped):
        return jax.jit(jax.grad(partial(loss, mapped), (0, 1)))(votes.poses, votes.kernel)

    batched = gradient(None)
    assert_same(gradient(jax.vmap), batched, 1e-4)
    assert_same(gradient(lambda f: blocked_vmap(f, 2)), batched, 1e-4)


@pytest.mark.symbolic_sizes
@each_procedure
def test_exported_for_batches_of_any_length(procedure):
    of_any = jax.ShapeDtypeStruct(jax.export.symbolic_shape(f"b, {I}, {J}, {D}"), jnp.float32)
    exported = jax.export.export(jax.jit(procedure))(of_any)
    exported = jax.export.deserialize(exported.serialize())
    for votes in (random_votes(), random_votes()[:1]):
        assert_same(exported.call(votes), jax.jit(procedure)(votes))


@each_procedure
@pytest.mark.parametrize("scale", [0.0, 1e4, 1e-30])
def test_extreme_votes_stay_finite(procedure, scale):
    for votes in (random_votes(scale), random_linear(scale=scale)):

        def loss(votes):
            routed = procedure(votes)
            return jnp.sum(routed.poses) + jnp.sum(routed.coupling**2), routed

        gradient, routed = jax.jit(jax.grad(loss, has_aux=True))(votes)
        for x in jax.tree.leaves((gradient, routed)):
            assert jnp.all(jnp.isfinite(x))


@pytest.mark.parametrize("start", [None, 0.25])
def test_em_children_without_activation_are_as_if_they_were_not_there(start):
    """Such as padding, which the parent of spread votes would take for all of its children."""
    rng, spread = np.random.default_rng(0), np.array([0.02, 0.5])[:, None]
    votes = np.float32(1 + spread * rng.normal(size=(6, 2, 16)))
    padded = np.concatenate([votes, np.zeros((3, 2, 16), np.float32)])
    coupling = None if start is None else np.linspace(start, 1 - start, 9)[:, None] * np.ones(2)

    def means(votes):
        active = jnp.asarray(np.arange(len(votes)) < 6, jnp.float32)
        first = None if coupling is None else jnp.asarray(coupling[: len(votes)])
        zeros = jnp.zeros(2)
        return em_routing(votes, active, zeros, zeros, num_iterations=3, coupling=first).poses

    def gradient(votes):
        return jax.grad(lambda votes: jnp.sum(jnp.sin(means(votes))))(votes)

    assert_same(means(padded), means(votes))
    assert_same(gradient(padded), np.pad(gradient(votes), [(0, 3), (0, 0), (0, 0)]))


def test_em_without_active_children_stays_finite():
    def loss(activations, votes):
        routed = em_routing(votes, activations, jnp.zeros(J), jnp.zeros(J))
        return jnp.sum(routed.poses) + jnp.sum(routed.activations)

    gradients = jax.grad(loss, (0, 1))(jnp.zeros((B, I)), random_votes())
    assert all(jnp.all(jnp.isfinite(x)) for x in gradients)


@each_procedure
def test_bfloat16_votes_are_reduced_in_float32(procedure):
    votes = random_linear(jnp.bfloat16)
    routed = jax.jit(procedure)(votes)
    assert routed.poses.dtype == jnp.bfloat16
    assert routed.coupling.dtype == jnp.float32
    wide = LinearVotes(votes.poses.astype(jnp.float32), votes.kernel.astype(jnp.float32))
    assert_same(routed.coupling, jax.jit(procedure)(wide).coupling, 2e-2)


def even_linear():
    """Votes of a batch that two devices can share."""
    votes = random_linear()
    return LinearVotes(votes.poses[:4], votes.kernel)


def kernel_gradient(procedure, poses, kernel):
    def loss(kernel):
        return jnp.sum(jnp.sin(procedure(LinearVotes(poses, kernel)).poses))

    return jax.grad(loss)(kernel)


@pytest.mark.parametrize("procedure", [dynamic, inverted, pytest.param(em, marks=pytest.mark.slow)])
def test_routing_inside_shard_map(procedure):
    votes = even_linear()
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    # The kernel is one for all devices, and so its gradient is summed over them.
    mapped = jax.shard_map(
        partial(kernel_gradient, procedure),
        mesh=mesh,
        in_specs=(PartitionSpec("data"), PartitionSpec()),
        out_specs=PartitionSpec(),
    )
    expected = kernel_gradient(procedure, votes.poses, votes.kernel)
    assert_same(jax.jit(mapped)(votes.poses, votes.kernel), expected, 1e-4)


def test_scale_may_be_learned():
    votes = random_linear()
    poses = jax.random.normal(jax.random.key(2), (J, D))

    def loss(scale, votes):
        routed = inverted_attention_routing(votes, poses, scale=scale, normalize=jax.nn.standardize)
        return jnp.sum(jnp.sin(routed.poses))

    value, slope = jax.jit(jax.value_and_grad(loss))(jnp.float32(0.7), votes)
    assert_same((value, slope), jax.value_and_grad(loss)(0.7, votes.dense()), 1e-4)
    assert_same(value, loss(0.7, votes))
    assert slope != 0


@each_procedure
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_strict_type_promotion(procedure, dtype):
    votes = random_linear(dtype)
    expected = jax.jit(procedure)(votes)
    with jax.numpy_dtype_promotion("strict"):
        found = jax.jit(procedure)(votes)
        jax.eval_shape(partial(kernel_gradient, procedure), votes.poses, votes.kernel)
    assert found.poses.dtype == dtype
    assert_same(found, expected)


@pytest.mark.parametrize("procedure", [inverted, em, pytest.param(dynamic, marks=pytest.mark.slow)])
def test_routing_on_explicit_axes(procedure):
    votes = even_linear()
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        poses = jax.device_put(votes.poses, NamedSharding(mesh, PartitionSpec("data")))
        routed = jax.jit(procedure)(LinearVotes(poses, votes.kernel))
        assert jax.typeof(routed.poses).sharding.spec[0] == "data"
        gradient = jax.jit(partial(kernel_gradient, procedure))(poses, votes.kernel)
    assert_same(jax.device_get(routed), procedure(votes), 1e-4)
    expected = kernel_gradient(procedure, votes.poses, votes.kernel)
    assert_same(jax.device_get(gradient), expected, 1e-4)


def test_arguments_that_are_whole_on_explicit_axes():
    """The result is divided as the votes are: one kernel for all children, and dense votes."""
    votes, logits = even_linear(), jnp.ones((I, J))
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    poses = jax.device_put(votes.poses, NamedSharding(mesh, PartitionSpec("data")))
    for make in (
        lambda poses: LinearVotes(poses, votes.kernel[:1]),
        lambda poses: LinearVotes(poses, votes.kernel).dense(),
    ):
        for route in (partial(dynamic_routing, logits=logits), em):
            routed = jax.jit(lambda poses, route=route, make=make: route(make(poses)))(poses)
            assert jax.typeof(routed.poses).sharding.spec[0] == "data"
            assert_same(jax.device_get(routed), route(make(votes.poses)), 1e-4)


def test_activations_that_are_whole_on_explicit_axes():
    """Closed over by what is mapped in blocks; and on a mesh that arguments alone know of."""
    votes = even_linear()
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    poses = jax.device_put(votes.poses, NamedSharding(mesh, PartitionSpec("data")))

    def loss(route, activations, poses, kernel):
        def means(poses):
            zeros = jnp.zeros(J)
            votes = LinearVotes(poses, kernel)
            return em_routing(votes, activations, zeros, zeros, num_iterations=2).poses

        return jnp.sum(jnp.sin(route(means)(poses)))

    def gradient(route, poses):
        f = jax.jit(jax.grad(partial(loss, route)))
        return jax.device_get(f(jnp.full(I, 0.7), poses, votes.kernel))

    expected = gradient(lambda f: f, votes.poses)
    assert_same(gradient(lambda f: f, poses), expected, 1e-4)
    with jax.set_mesh(mesh):
        assert_same(gradient(lambda f: blocked_vmap(f, 1), poses), expected, 1e-4)


@pytest.mark.slow
def test_all_routing_tests_with_64_bit_types_enabled():
    if os.environ.get("JAX_ENABLE_X64") == "1":
        pytest.skip("this is that run")
    command = [sys.executable, "-m", "pytest", "-q", os.path.dirname(__file__)]
    done = subprocess.run(
        [*command, "-m", "not slow"],
        env=os.environ | {"JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def gradient_of_em(dtype, scale):
    """Results and gradients by votes of this magnitude."""
    draw = np.random.default_rng(0).normal
    votes, weights = scale * draw(size=(2, I, J, D)), draw(size=(2, J, D))
    with jax.enable_x64(dtype == jnp.float64):
        per_parent = jnp.zeros(J, dtype)

        def loss(votes):
            routed = em_routing(votes, jnp.full(I, 0.7, dtype), per_parent, per_parent)
            return jnp.sum(routed.poses * jnp.asarray(weights, dtype)), routed

        gradient, routed = jax.jit(jax.grad(loss, has_aux=True))(jnp.asarray(votes, dtype))
        return jax.device_get((tuple(routed), gradient))


def test_where_squares_of_votes_overflow_in_em():
    """The limits of float32 that the docstring of `em_routing` states."""
    for scale in (1e8, 1e18):
        (routed, gradient), (expected, slope) = (
            gradient_of_em(dtype, scale) for dtype in (jnp.float32, jnp.float64)
        )
        for ours, theirs in zip(routed, expected, strict=True):
            assert np.max(np.abs(ours - theirs)) <= 1e-4 * np.max(np.abs(theirs))
        if scale == 1e8:
            assert np.max(np.abs(gradient - slope)) <= 1e-4 * np.max(np.abs(slope))
        else:
            assert np.all(np.isfinite(slope))
            assert not np.any(np.isfinite(gradient))
    routed, _ = gradient_of_em(jnp.float32, 1e20)
    assert not np.any(np.isfinite(routed[0]))
    assert np.all(np.isfinite(gradient_of_em(jnp.float64, 1e20)[0][0]))
