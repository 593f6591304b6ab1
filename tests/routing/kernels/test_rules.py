"""The rules of the primitives in capsjax/routing/kernels/adapter.py, with the installed JAX.

The adapter uses parts of JAX outside its public API. Each is tried here, so that a new JAX that
changes one says which.
"""

import contextlib
from functools import partial

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from capsjax.routing import LinearVotes, dynamic_routing, inverted_attention_routing, kernels
from capsjax.routing.kernels import agreement, cpu, einsum, interpreted, total, without_kernels
from capsjax.routing.kernels import attend as ours
from capsjax.routing.kernels.layout import row_major
from capsjax.routing.kernels.terms import Sizes
from tests.routing.kernels import problems
from tests.routing.kernels.problems import attend as plain

SIZES = Sizes((4,), children=3, parents=4, rows=2, columns=2, width=2)


@pytest.fixture
def operands(float64):
    return {letter: jnp.asarray(x) for letter, x in problems.problem(SIZES).items()}


def in_float32(letters, sizes=SIZES):
    values = problems.problem(sizes)
    return [jnp.asarray(values[letter], jnp.float32) for letter in letters]


def assert_same(found, expected, tolerance=1e-10):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_forward_mode(operands):
    primals = [operands[letter] for letter in "pkq"]
    tangents = [operands[letter] for letter in "PKw"]
    for some in ((0, 1, 2), (1,)):

        def varied(f, xs, some=some):
            full = list(primals)
            for place, x in zip(some, xs, strict=True):
                full[place] = x
            return f(*full)

        def rates(f, some=some, varied=varied):
            chosen = [[xs[place] for place in some] for xs in (primals, tangents)]
            return jax.jvp(lambda *xs: varied(f, xs), *chosen)

        assert_same(jax.jit(partial(rates, ours))(), rates(plain))


def test_reverse_mode_through_sums_and_couplings(operands):
    def loss(f, p, k, q):
        sums, coupling = f(p, k, q)
        return jnp.sum(sums * operands["w"]) + jnp.sum(coupling**2)

    primals = [operands[letter] for letter in "pkq"]
    for loss_of in (loss, lambda f, *xs: jnp.sum(f(*xs)[1] ** 2)):
        found = jax.jit(jax.grad(partial(loss_of, ours), (0, 1, 2)))(*primals)
        assert_same(found, jax.grad(partial(loss_of, plain), (0, 1, 2))(*primals))
        rematerialised = jax.checkpoint(partial(loss_of, ours))
        assert_same(jax.jit(jax.grad(rematerialised, (0, 1, 2)))(*primals), found)


def test_second_derivatives_in_every_order(operands):
    p, k, q = (operands[letter] for letter in "pkq")

    def loss(f, k):
        return jnp.sum(jnp.sin(f(p, k, q)[0]))

    def along(f, outer, inner):
        direction = operands["K"]
        return outer(lambda k: jnp.sum(inner(partial(loss, f))(k) * direction))(k)

    expected = along(plain, jax.grad, jax.grad)
    for outer, inner in ((jax.grad, jax.grad), (jax.jacfwd, jax.jacrev), (jax.jacrev, jax.jacfwd)):
        assert_same(jax.jit(partial(along, ours, outer, inner))(), expected)


def test_the_transpose_of_the_transpose(operands):
    p, k, q = (operands[letter] for letter in "pkq")
    _, tangent = jax.linearize(lambda q: ours(p, k, q)[0], q)
    transposed = jax.linear_transpose(tangent, q)
    (twice,) = jax.linear_transpose(lambda g: transposed(g)[0], operands["w"])(operands["w"])
    assert_same(twice, tangent(operands["w"]))


@pytest.mark.parametrize("mapped", ["pq", "p", "q", "k", "pkq"])
def test_vmap(operands, mapped):
    arguments = {letter: operands[letter] for letter in "pkq"}
    axes = {letter: 1 if letter in mapped else None for letter in "pkq"}
    copies = {
        letter: jnp.stack([x, 2 * x, -x], axis=1) if letter in mapped else x
        for letter, x in arguments.items()
    }

    def both(f, xs):
        def loss(xs):
            sums, coupling = f(xs["p"], xs["k"], xs["q"])
            return jnp.sum(sums * operands["w"]) + jnp.sum(coupling**2)

        return f(xs["p"], xs["k"], xs["q"]), jax.grad(loss)(xs)

    def run(f):
        return jax.vmap(partial(both, f), in_axes=(axes,))(copies)

    assert_same(jax.jit(partial(run, ours))(), run(plain))


def test_a_batched_kernel_gradient_is_one_contraction(operands):
    def loss(k, p, q):
        return jnp.sum(jax.vmap(lambda p, q: ours(p, k, q)[0])(p, q) ** 2)

    text = str(jax.make_jaxpr(jax.grad(loss))(*(operands[letter] for letter in "kpq")))
    assert "capsjax_attention_cotangent" in text
    assert "scan" not in text
    assert "while" not in text


def test_gradients_of_each_example(operands):
    """`grad(vmap(f))` and `vmap(grad(f))`: a `custom_vjp` gets only one of them right."""

    def loss(f, k, p, q):
        return jnp.sum(f(p, k, q)[0] ** 2)

    def for_each(f):
        return jax.vmap(jax.grad(partial(loss, f)), in_axes=(None, 0, 0))

    def for_all(f):
        return jax.grad(lambda k, p, q: jnp.sum(jax.vmap(partial(loss, f, k))(p, q)))

    k, p, q = (operands[letter] for letter in "kpq")
    each = jax.jit(for_each(ours))(k, p, q)
    assert each.shape == (len(p), *k.shape)
    assert not np.allclose(each[0], each[1])
    assert_same(each, for_each(plain)(k, p, q))
    assert_same(jax.jit(for_all(ours))(k, p, q), jnp.sum(each, axis=0))


def clusters(of, c, p, k, w):
    """The log-likelihood of an M-step and an E-step, more or less; `of` has the functions."""
    sums, squares, total = of.moments(c, p, k)
    means = sums / total[..., None, None]
    distances = of.distance(p, k, means, w)
    return jnp.sum(jnp.sin(squares)) + jnp.sum(jnp.cos(distances)) + jnp.sum(means**2)


our_clusters, plain_clusters = partial(clusters, kernels), partial(clusters, problems)


def test_moments_and_distance_have_derivatives_of_second_order(operands):
    primals = [jnp.abs(operands["c"]), *(0.3 * operands[letter] for letter in "pkw")]
    tangents = [operands[letter] for letter in "cPKm"]

    def second(f):
        value, rate = jax.jvp(jax.grad(f, (0, 1, 2, 3)), primals, tangents)
        along = partial(jax.jvp, f, primals)  # forward mode, then reverse
        return value, rate, jax.grad(lambda t: along(t)[1])(tangents)

    assert_same(jax.jit(partial(second, our_clusters))(), second(plain_clusters), 1e-8)


def test_moments_under_vmap(operands):
    c, p, k, w = (jnp.abs(operands[a]) if a == "c" else operands[a] for a in "cpkw")
    for axes in ((0, None, None, None), (None, 0, None, 0), (0, 0, 0, 0)):
        xs = [
            jnp.stack([x, 2 * x]) if a == 0 else x for x, a in zip((c, p, k, w), axes, strict=True)
        ]

        def run(f, xs=xs, axes=axes):
            return jax.vmap(jax.value_and_grad(f, (0, 1, 2, 3)), in_axes=axes)(*xs)

        assert_same(jax.jit(partial(run, our_clusters))(), run(plain_clusters), 1e-8)


def data_mesh(kind):
    return jax.make_mesh((2,), ("data",), axis_types=(kind,))


def loss_of_kernel(k, p, q):
    return jnp.sum(jnp.sin(ours(p, k, q)[0]))


def gradient_in_shard_map(mesh, **options):
    """The gradient of the kernel, which is the same on all devices."""
    data = PartitionSpec("data")
    specs = {"in_specs": (PartitionSpec(), data, data), "out_specs": PartitionSpec()}
    return jax.jit(jax.shard_map(jax.grad(loss_of_kernel), mesh=mesh, **specs, **options))


@pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda"])
def test_shard_map_with_checked_types(platform):
    arguments = in_float32("kpq")
    expected = jax.grad(loss_of_kernel)(*arguments)
    mapped = gradient_in_shard_map(data_mesh(AxisType.Auto))
    with contextlib.nullcontext() if platform == "cpu" else interpreted(platform):
        assert_same(mapped(*arguments), expected, 1e-4)


def test_shard_map_over_some_axes_of_a_mesh():
    arguments = in_float32("kpq")
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    mapped = gradient_in_shard_map(mesh, axis_names={"data"})
    assert_same(mapped(*arguments), jax.grad(loss_of_kernel)(*arguments), 1e-4)


@pytest.mark.parametrize("sizes", [SIZES, SIZES._replace(rows=1)], ids=["matrices", "vectors"])
def test_explicit_axes(sizes):
    arguments = in_float32("kpq", sizes)
    expected = jax.grad(loss_of_kernel)(*arguments)
    mesh = data_mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        divided = NamedSharding(mesh, PartitionSpec("data"))
        k, *rest = arguments
        rest = [jax.device_put(x, divided) for x in rest]
        assert jax.typeof(jax.jit(ours)(rest[0], k, rest[1])[0]).sharding.spec[0] == "data"
        for platform in ("tpu", "cuda"):
            with interpreted(platform):
                found = jax.jit(jax.grad(loss_of_kernel))(k, *rest)
            assert_same(jax.device_get(found), expected, 1e-4)


def each_example(f):
    return lambda k, p, q: jax.vmap(partial(f, k))(p, q)


TRANSFORMED = {
    "results": lambda k, p, q: ours(p, k, q),
    "gradients": jax.grad(loss_of_kernel, (0, 1, 2)),
    "gradients of the sum of votes": jax.grad(
        lambda k, p, q: jnp.sum(q * jnp.sin(total(p, k))), (0, 1, 2)
    ),
    "vmap": each_example(lambda k, p, q: ours(p, k, q)),
    "vmap of gradients": each_example(jax.grad(loss_of_kernel, (0, 1, 2))),
    "vmap of gradients of one derivative": each_example(
        jax.grad(lambda k, p, q: jnp.sum(jnp.sin(agreement(p, k, q))))
    ),
    "second derivatives": lambda *xs: jax.jvp(jax.grad(loss_of_kernel, (0, 1, 2)), xs, xs),
    "gradient of vmap of gradients": jax.grad(
        lambda k, p, q: jnp.sum(each_example(jax.grad(loss_of_kernel))(k, p, q) ** 2)
    ),
}


@pytest.mark.parametrize(
    ("name", "axes"), [*((name, "data") for name in TRANSFORMED), ("results", ("data", "model"))]
)
def test_transformations_on_explicit_axes(name, axes):
    k, p, q = in_float32("kpq", SIZES._replace(batch=(16,)))
    f = jax.jit(TRANSFORMED[name])
    expected = f(k, p, q)
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    with jax.set_mesh(mesh):
        divided = NamedSharding(mesh, PartitionSpec(axes))
        # What is whole beside divided operands is divided alike.
        found = f(k, jax.device_put(p, divided), jax.device_put(q, divided))
        if name == "results":
            mixed = f(k, jax.device_put(p, divided), q)
            assert_same(jax.device_get(mixed), expected, 1e-4)
            text = f.lower(k, jax.device_put(p, divided), q).as_text()
            assert "manual_computation" in text  # of Shardy: `jax.shard_map`
    assert_same(jax.device_get(found), expected, 1e-4)


@pytest.mark.parametrize(
    ("k_spec", "p_spec", "q_spec"),
    [
        (("model",), ("data", "model"), ("data",)),
        ((None, None, "model"), ("data",), ("data", "model")),
        (("data",), ("data",), ("data",)),
    ],
    ids=["children", "parents", "weights"],
)
def test_explicit_axes_that_divide_more_than_the_batch(k_spec, p_spec, q_spec):
    arguments = in_float32("kpq", SIZES._replace(children=4))
    f = jax.jit(jax.value_and_grad(loss_of_kernel, (0, 1, 2)))
    expected = f(*arguments)
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    with jax.set_mesh(mesh):
        specs = [NamedSharding(mesh, PartitionSpec(*spec)) for spec in (k_spec, p_spec, q_spec)]
        found = f(*map(jax.device_put, arguments, specs))
        # Each gradient is divided as its operand.
        for x, sharding in zip(found[1], specs, strict=True):
            assert x.sharding.is_equivalent_to(sharding, x.ndim)
    assert_same(jax.device_get(found), expected, 1e-4)


@pytest.mark.parametrize("batch", [(10,), (4, 3)], ids=["one axis", "two axes"])
def test_explicit_axes_in_several_blocks(batch, monkeypatch):
    sizes = SIZES._replace(batch=batch)
    # Two positions in a block: each device has five or six of them.
    monkeypatch.setattr(cpu, "_BLOCK_BYTES", 2 * 4 * sizes.children * sizes.parents)
    monkeypatch.setattr(einsum, "_BLOCK_BYTES", 2 * 4 * sizes.children * sizes.parents * 4)
    k, p, q = in_float32("kpq", sizes)
    both = jax.jit(lambda k, p, q: (ours(p, k, q), jax.grad(loss_of_kernel, (0, 1, 2))(k, p, q)))
    expected = both(k, p, q)
    mesh = data_mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        divided = NamedSharding(mesh, PartitionSpec("data"))
        arguments = k, *(jax.device_put(x, divided) for x in (p, q))
        found = both(*arguments)
        assert jax.typeof(found[0][0]).sharding.spec[0] == "data"
        traced = both.trace(*arguments)
        with without_kernels():
            for platform in ("tpu", "cuda"):
                assert "while" in traced.lower(lowering_platforms=(platform,)).as_text()
    assert_same(jax.device_get(found), expected, 1e-4)


def test_export_for_all_platforms_at_once():
    arguments = in_float32("kpq")
    gradient = jax.jit(jax.grad(loss_of_kernel))
    exported = jax.export.export(gradient, platforms=("cpu", "cuda", "tpu"))(*arguments)
    assert "tpu_custom_call" in exported.mlir_module()
    again = jax.export.deserialize(exported.serialize())
    assert_same(again.call(*arguments), gradient(*arguments), 1e-6)


def test_row_major_changes_nothing(operands):
    x = operands["p"]
    assert_same(row_major(x), x)
    assert_same(jax.grad(lambda x: jnp.sum(row_major(x) ** 2))(x), 2 * x)
    assert_same(jax.vmap(row_major, in_axes=1, out_axes=1)(x), x)
    assert_same(jax.jvp(row_major, (x,), (2 * x,)), (x, 2 * x))


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize("rows", [1, 2])
def test_export_for_batches_of_any_size(rows):
    sizes = SIZES._replace(rows=rows)
    arguments = in_float32("pkq", sizes)
    (batch,) = jax.export.symbolic_shape("b")
    shapes = [
        jax.ShapeDtypeStruct(x.shape if letter == "k" else (batch, *x.shape[1:]), x.dtype)
        for letter, x in zip("pkq", arguments, strict=True)
    ]
    exported = jax.export.export(jax.jit(ours), platforms=("cpu", "cuda", "tpu"))(*shapes)
    assert_same(exported.call(*arguments), ours(*arguments), 1e-5)


def test_a_second_eager_call_compiles_nothing(caplog):
    votes = LinearVotes(jnp.ones((4, 1, 8)), jnp.ones((4, 8, 3, 16)))
    coupling = jnp.ones((4, 3))
    votes.combine(coupling)
    with jax.log_compiles():
        votes.combine(coupling)
    assert not [record for record in caplog.records if "Compiling" in record.getMessage()]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_with_jit_off(iterations):
    """As one looks into a network: the sums are programs all the same."""
    u = jax.random.normal(jax.random.key(0), (4, 6, 2, 2))
    votes = LinearVotes(u, jax.random.normal(jax.random.key(1), (6, 2, 4, 2)))
    expected = dynamic_routing(votes, num_iterations=iterations).poses
    with jax.disable_jit():
        found = dynamic_routing(votes, num_iterations=iterations).poses
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_nan_is_found_where_it_arises():
    """In a routing whose input is finite."""
    u = jnp.full((2, 6, 2, 2), 1e20, jnp.float32)
    kernel = 1e18 * jax.random.normal(jax.random.key(0), (6, 2, 4, 2), jnp.float32)

    def route(u, kernel):
        votes, poses = LinearVotes(u, kernel), jnp.full((4, 4), 1e10, jnp.float32)
        return inverted_attention_routing(votes, poses, normalize=lambda p: p).poses

    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        jax.jit(route)(u, kernel)
