"""Kernels of both platforms, interpreted, against NumPy in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.routing import LinearVotes, inverted_attention_routing, kernels
from capsjax.routing.kernels import (
    einsum,
    forms,
    interpreted,
    mosaic,
    tpu,
    tpu_vectors,
    without_kernels,
)
from capsjax.routing.kernels.derivatives import differentiate
from capsjax.routing.kernels.terms import TERMS, Sizes, operands_of
from tests.processes import printed
from tests.routing.kernels import problems

PLATFORMS = ["tpu", "cuda"]
MATRICES = Sizes((2, 3), children=3, parents=5, rows=2, columns=3, width=2)
VECTORS = Sizes((7,), children=3, parents=3, rows=1, columns=8, width=4)

each_platform = pytest.mark.parametrize("platform", PLATFORMS)


def as_float32(operands):
    return {letter: jnp.asarray(x, jnp.float32) for letter, x in operands.items()}


def assert_close(ours, expected, tolerance=2e-5):
    assert ours.shape == expected.shape
    scale = np.max(np.abs(expected))
    assert np.max(np.abs(np.asarray(ours, np.float64) - expected)) <= tolerance * scale


def compiled(f):
    """`f` compiled anew: jit keeps what it lowered for another platform."""
    return jax.jit(lambda *xs: f(*xs))


def derivatives(operands):
    return {
        (scalar, wrt): differentiate(
            scalar, wrt, {a: operands[a] for a in operands_of(scalar, wrt)}
        )
        for scalar, wrt in TERMS
    }


def check_derivatives(sizes):
    operands = problems.problem(sizes)
    found = compiled(derivatives)(as_float32(operands))
    for (scalar, wrt), ours in found.items():
        assert_close(ours, problems.derivative(scalar, wrt, operands))


@each_platform
def test_derivatives(platform):
    with interpreted(platform):
        check_derivatives(MATRICES)


@pytest.mark.parametrize("sizes", [MATRICES, VECTORS])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_the_sum_of_all_votes(platform, sizes):
    operands = problems.problem(sizes)
    for wrt in "pkq":
        known = as_float32({a: operands[a] for a in operands_of("U", wrt)})
        found = einsum.uniform(known, wrt=wrt, platform=platform)
        assert_close(found, problems.derivative("U", wrt, operands))


def routed(p, k, q, g, of=kernels):
    """Sums, couplings and gradients: with the cotangent of the couplings known to be none."""

    def loss(p, k, q):
        sums, coupling = of.attend(p, k, q)
        return jnp.sum(sums * g), (sums, coupling)

    return jax.grad(loss, (0, 1, 2), has_aux=True)(p, k, q)


def exact(f, *xs):
    """What `f` gives with all votes in float64."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, f(*map(jnp.asarray, xs), of=problems))


def check_attention(platform, sizes, tolerance=2e-5):
    operands = problems.problem(sizes)
    values = [operands[letter] for letter in "pkqw"]
    with interpreted(platform):
        found = compiled(routed)(*(jnp.asarray(x, jnp.float32) for x in values))
    jax.tree.map(partial(assert_close, tolerance=tolerance), found, exact(routed, *values))


@each_platform
@pytest.mark.parametrize(
    "sizes",
    [
        MATRICES,
        VECTORS,
        Sizes((130,), 2, 1, 2, 2, 2),  # one parent; more positions than a register has lanes
        pytest.param(Sizes((3,), 2, 41, 2, 2, 1), marks=pytest.mark.slow),  # many groups of parents
        pytest.param(Sizes((5,), 130, 4, 1, 3, 2), marks=pytest.mark.slow),  # children over a block
        pytest.param(Sizes((3,), 2, 9, 4, 4, 4), marks=pytest.mark.slow),
        pytest.param(Sizes((3,), 2, 3, 6, 6, 6), marks=pytest.mark.slow),
        pytest.param(Sizes((2,), 2, 3, 8, 8, 8), marks=pytest.mark.slow),
        pytest.param(Sizes((2,), 2, 3, 1, 16, 32), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_attention(platform, sizes):
    check_attention(platform, sizes)


@pytest.mark.parametrize("sizes", [MATRICES, VECTORS], ids=["matrices", "vectors"])
def test_several_blocks_of_positions(monkeypatch, sizes):
    # So little room that a block has 128 positions: 300 need three.
    monkeypatch.setattr(mosaic, "BLOCK_BYTES", 1)
    check_attention("tpu", sizes._replace(batch=(300,)), tolerance=5e-5)


def clusters(c, p, k, m, q, w, of=kernels):
    """Moments and distances of EM, and the gradients of both."""

    def of_moments(c, p, k):
        sums, squares, total = results = of.moments(c, p, k)
        return jnp.sum(sums * q) + jnp.sum(squares * w) + jnp.sum(total * q[..., 0, 0]), results

    def of_distance(p, k, m, w):
        distances = of.distance(p, k, m, w)
        return jnp.sum(c * distances), distances

    return (
        jax.grad(of_moments, (0, 1, 2), has_aux=True)(c, p, k),
        jax.grad(of_distance, (0, 1, 2, 3), has_aux=True)(p, k, m, w),
    )


@pytest.mark.parametrize(
    ("platform", "sizes"),
    [
        ("tpu", MATRICES),
        ("tpu", Sizes((130,), 2, 9, 2, 2, 2)),  # several groups, more positions than lanes
        ("cuda", MATRICES),
        pytest.param("tpu", Sizes((3,), 2, 3, 4, 4, 4), marks=pytest.mark.slow),
        pytest.param("tpu", VECTORS, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_clusters(platform, sizes):
    operands = problems.problem(sizes)
    operands["c"] = np.abs(operands["c"])
    values = [operands[letter] for letter in "cpkmqw"]
    with interpreted(platform):
        found = compiled(clusters)(*(jnp.asarray(x, jnp.float32) for x in values))
    jax.tree.map(assert_close, found, exact(clusters, *values))


@pytest.mark.slow
@pytest.mark.parametrize(("module", "sizes"), [(tpu, MATRICES), (tpu_vectors, VECTORS)])
def test_no_races_on_tpu(module, sizes):
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as interpreter
    from jax.experimental.pallas import tpu as pltpu

    operands = as_float32(problems.problem(sizes))
    p, k, q, w = (operands[letter] for letter in "pkqw")
    calls = [lambda: module.attend(p, k, q), lambda: module.attend_backward(p, k, q, w)]
    if module is tpu:
        of_gradients = {letter: operands[letter] for letter in "cpkmwq"}
        calls += [
            lambda: module.sums(operands["c"], p, k),
            lambda: module.gradients(of_gradients, wrt="cpk"),
            lambda: module.gradients(of_gradients, wrt="mwpk"),
        ]
    # Called as they are: the detector's callbacks have no place in the lowering of a primitive.
    with interpreted("tpu", pltpu.InterpretParams(detect_races=True)):
        for call in calls:
            jax.block_until_ready(jax.jit(call)())
            assert not interpreter.races.races_found


@each_platform
def test_bfloat16_is_summed_in_float32(platform):
    operands = problems.problem(MATRICES)
    narrow = [jnp.asarray(operands[letter], jnp.bfloat16) for letter in "pk"]
    wide = [np.asarray(x, np.float64) for x in narrow]
    start = jnp.asarray(operands["q"], jnp.float32).reshape(*MATRICES.batch, 5, 4)

    def route(p, k):
        return inverted_attention_routing(LinearVotes(p, k), start, normalize=lambda s: s)

    with interpreted(platform):
        found = compiled(route)(*narrow)
    q = 0.5 * np.asarray(operands["q"], np.float32)
    (_, (sums, coupling)) = exact(routed, *wide, q, q)
    assert found.poses.dtype == jnp.bfloat16
    assert found.coupling.dtype == jnp.float32
    assert_close(found.coupling, coupling)
    assert_close(found.poses, sums.reshape(found.poses.shape), 2e-2)


@each_platform
def test_what_no_kernel_takes_gives_the_same(platform):
    target = forms.Target(platform, capability=(8, 0))
    taken = forms.choose(target, MATRICES, jnp.float32)
    assert taken.name == "kernel"
    with without_kernels():
        assert forms.choose(target, MATRICES, jnp.float32) is forms.PRODUCTS
    for of_target, sizes, dtype in (
        (target, MATRICES, jnp.float64),
        (target, MATRICES._replace(batch=(0,)), jnp.float32),
        (target, Sizes((2,), 2, 2, 10, 10, 10), jnp.float32),
        (target._replace(divided=True), MATRICES, jnp.float32),
    ):
        assert forms.choose(of_target, sizes, dtype) is forms.PRODUCTS
    with interpreted(platform), without_kernels():
        check_derivatives(MATRICES)


def test_gpus_without_triton_get_products(monkeypatch):
    def form(capability):
        target = forms.Target("cuda", capability=capability)
        return forms.choose(target, MATRICES, jnp.float32).name

    assert {form(recent) for recent in ((8, 0), (8, 9), (10, 0))} == {"kernel"}
    assert form((7, 5)) == form(None) == "products"
    monkeypatch.setattr(forms.importlib.util, "find_spec", lambda name: None)
    assert form((9, 0)) == "products"


def test_products_in_blocks(monkeypatch):
    monkeypatch.setattr(einsum, "_BLOCK_BYTES", 600)  # two or three positions at a time
    check_derivatives(VECTORS)


@each_platform
def test_an_empty_batch(platform):
    operands = as_float32(problems.problem(MATRICES._replace(batch=(0,))))
    with interpreted(platform):
        gradients, (sums, coupling) = compiled(routed)(*(operands[letter] for letter in "pkqw"))
    assert sums.shape == operands["q"].shape
    assert coupling.shape == operands["c"].shape
    assert not jnp.any(gradients[1])


TEXT_OF_A_KERNEL = """
import jax
from capsjax.routing.kernels import tpu
from tests.routing.kernels.problems import problem
from tests.routing.kernels.test_kernels import MATRICES, as_float32

operands = {letter: x for letter, x in as_float32(problem(MATRICES)).items() if letter in "cpkmwq"}
gradients = jax.jit(lambda operands: tpu.gradients(operands, wrt="mw"))
print(gradients.trace(operands).lower(lowering_platforms=("tpu",)).as_text())
"""


@pytest.mark.slow
def test_a_kernel_is_the_same_program_in_every_process():
    """JAX's cache of compiled programs finds a program by its text."""
    # With these seeds a set of letters has different orders.
    texts = {printed(TEXT_OF_A_KERNEL, PYTHONHASHSEED=seed) for seed in "12"}
    assert len(texts) == 1
