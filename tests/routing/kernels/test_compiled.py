"""Every kernel compiled for a TPU and a GPU: what it stores, what it takes, and that it fits."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from capsjax.routing import (
    LinearVotes,
    WindowVotes,
    attention_routing,
    dynamic_routing,
    em_routing,
    inverted_attention_routing,
    over_devices,
    uniform_routing,
)
from capsjax.routing.kernels.derivatives import differentiate
from capsjax.routing.kernels.terms import TERMS, WEIGHTS, Sizes, operands_of, shape_of

pytestmark = pytest.mark.accelerators

each_target = pytest.mark.parametrize("target", ["v5e:2x2", "h100"])


def shape(*extents):
    return jax.ShapeDtypeStruct(extents, jnp.float32)


def with_gradient(f):
    def g(cotangent, *xs):
        result, pull_back = jax.vjp(f, *xs)
        return result, pull_back(cotangent)

    return g


def convolutional(poses, kernel):
    votes = WindowVotes(poses, kernel, 3, stride=2)
    first = inverted_attention_routing(votes, normalize=jax.nn.standardize).poses
    return inverted_attention_routing(votes, first, normalize=jax.nn.standardize).poses


def dense(poses, kernel):
    return dynamic_routing(LinearVotes(poses, kernel)).poses


# A procedure, its arguments, the elements of all its votes, and bounds on megabytes and TPU cycles.
CONVOLUTIONAL = (
    convolutional,
    (shape(32, 16, 16, 32, 4, 4), shape(288, 4, 32, 4)),
    1568 * 288 * 32 * 16,
    {False: (60, 2.5e6), True: (150, 8e6)},
)
DENSE = (
    dense,
    (shape(128, 1152, 1, 8), shape(1152, 8, 10, 16)),
    128 * 1152 * 160,
    {False: (30, 0.6e6), True: (100, 1.2e6)},
)


@each_target
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("row", [CONVOLUTIONAL, DENSE], ids=["windows", "vectors"])
def test_a_procedure_stores_no_votes(compiled_for, target, gradient, row):
    f, shapes, votes, bounds = row
    if gradient:
        shapes = (jax.eval_shape(f, *shapes), *shapes)
        f = with_gradient(f)
    compiled = compiled_for(target, f, *shapes)
    megabytes, cycles = bounds[gradient]
    assert compiled.stores(votes) == []
    assert compiled.memory.temporary < megabytes * 1e6
    if target == "h100":
        assert compiled.gpu_kernels
        assert {
            kernel.name: kernel.spilled for kernel in compiled.gpu_kernels if kernel.spilled
        } == {}
    else:
        assert compiled.tpu_kernels
        assert compiled.cycles < cycles


def test_a_mesh_gets_the_kernels_of_shard_map(compiled_for):
    """On explicit axes without a word, on automatic ones by `over_devices`."""
    from _compile import targets
    from _compile.crosscompile import compile_lowered

    f, (poses, kernel), *_ = DENSE
    target = targets.find("v5e:2x4")
    whole, divided = PartitionSpec(), PartitionSpec("data")

    def over(mesh):
        return lambda x, k: over_devices(lambda k, x: f(x, k), "data", mesh=mesh)(k, x)

    def by_shard_map(mesh):
        specs = {"in_specs": (divided, divided, whole), "out_specs": (divided, (divided, whole))}
        return jax.shard_map(with_gradient(f), mesh=mesh, **specs)

    def compiled(kind, of_mesh):
        mesh = Mesh(np.array(targets.devices(target)), ("data",), axis_types=(kind,))
        shapes = (jax.eval_shape(f, poses, kernel), poses, kernel)
        arguments = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
            for x, spec in zip(shapes, (divided, divided, whole), strict=True)
        ]
        return compile_lowered(target, lambda: jax.jit(of_mesh(mesh)).lower(*arguments))

    mapped = compiled(AxisType.Auto, by_shard_map)
    assert mapped.tpu_kernels
    for kind, of_mesh in (
        (AxisType.Explicit, lambda _: with_gradient(f)),
        (AxisType.Auto, lambda mesh: with_gradient(over(mesh))),
    ):
        found = compiled(kind, of_mesh)
        assert len(found.tpu_kernels) == len(mapped.tpu_kernels)
        assert found.cycles < 1.05 * mapped.cycles
        assert len(re.findall(r" all-reduce(?:-start)?\(", found.module.text)) == 1  # of ∂W


@each_target
@pytest.mark.parametrize(
    "sizes", [Sizes((300,), 20, 10, 4, 4, 4), Sizes((300,), 20, 100, 6, 6, 6)], ids=str
)
def test_every_derivative_compiles(compiled_for, target, sizes):
    def operand(letter):
        lead = () if letter in WEIGHTS else sizes.batch
        return shape(*lead, *shape_of(letter, sizes))

    operands = {letter: operand(letter) for letter in "cpPkKqwm"}

    def derivatives(operands):
        return [
            differentiate(scalar, wrt, {a: operands[a] for a in operands_of(scalar, wrt)})
            for scalar, wrt in TERMS
        ]

    compiled = compiled_for(target, derivatives, operands)
    votes = sizes.positions * sizes.children * sizes.parents * sizes.rows * sizes.width
    assert compiled.stores(votes) == []
    kernels = compiled.gpu_kernels if target == "h100" else compiled.tpu_kernels
    assert len(kernels) >= len(TERMS)


def matrices(procedure):
    """The procedure on children with matrix poses, and the shapes of its arguments."""

    def f(poses, kernel):
        return procedure(LinearVotes(poses, kernel))

    return f, (shape(8, 36, 4, 4), shape(36, 4, 10, 4))


def em(votes):
    activations, per_parent = jnp.full(votes.poses.shape[:-2], 0.5), jnp.ones(10)
    return em_routing(votes, activations, per_parent, per_parent).poses


def inverted(votes):
    return inverted_attention_routing(votes, jnp.ones((8, 10, 16)), normalize=jnp.tanh).poses


PROCEDURES = {
    "uniform": matrices(lambda votes: uniform_routing(votes).poses),
    "dynamic": matrices(lambda votes: dynamic_routing(votes).poses),
    "em": matrices(em),
    "inverted_attention": matrices(inverted),
    "attention": (
        lambda transformed, kernel: attention_routing(transformed, kernel).poses,
        (shape(8, 10, 16), shape(16, 10, 10)),
    ),
}


@pytest.mark.parametrize("target", ["t4", "a100", "h100", "b200"])
def test_every_procedure_on_every_gpu(compiled_for, target):
    """Before Ampere there is no Triton, and so there are no kernels."""
    functions = [with_gradient(f) for f, _ in PROCEDURES.values()]
    arguments = [(jax.eval_shape(f, *shapes), *shapes) for f, shapes in PROCEDURES.values()]

    def all_of_them(arguments):
        return [f(*xs) for f, xs in zip(functions, arguments, strict=True)]

    compiled = compiled_for(target, all_of_them, arguments)
    names = {kernel.name for kernel in compiled.gpu_kernels}
    assert names
    assert bool({"attend", "attend_backward"} & names) == (target != "t4")
