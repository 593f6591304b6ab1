"""What is used of other packages beyond their public interfaces, each part tried by itself.

A new version that changes one of these fails here first, with its name. The rules of JAX's
primitives are tried one by one in `tests/routing/kernels/test_rules.py`.
"""

import ast
import itertools
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
NOT_PUBLIC = (
    "jax._src",
    "jax.experimental",
    "jax.extend",
    "jax.interpreters",
    "grain.experimental",
    "orbax.checkpoint.checkpoint_managers",
)
CANARIES = {}


def canary(*names):
    def add(function):
        CANARIES.update(dict.fromkeys(names, function))
        return function

    return add


@canary("jax.extend.core.Primitive", "jax.interpreters.ad", "jax.interpreters.batching")
@canary("jax.interpreters.mlir")
def _primitive():
    from capsjax.routing.kernels import adapter

    def chosen(target, avals):
        assert target.platform in (*adapter.PLATFORMS, "default")
        return jnp.sin, False

    sine = adapter.define("sine", abstract=lambda x: x, choose=chosen)
    adapter.set_rules(
        sine,
        jvp=lambda primals, tangents: (
            sine.bind(*primals),
            jnp.cos(primals[0]) * adapter.instantiate(tangents[0]),
        ),
        batch=lambda args, axes: (sine.bind(*args), axes[0]),
    )
    x = jnp.linspace(0, 1, 3)
    np.testing.assert_allclose(jax.vmap(jax.grad(sine.bind))(x), jnp.cos(x), rtol=1e-6)


@canary("jax.extend.core.ClosedJaxpr", "jax.extend.core.jaxpr_as_fun")
@canary("jax.extend.core.Literal")
def _jaxpr():
    from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

    closed = jax.make_jaxpr(jax.jit(lambda x: x + 1))(1.0)
    assert isinstance(closed, ClosedJaxpr)
    (call,) = closed.jaxpr.eqns
    assert any(isinstance(value, ClosedJaxpr) for value in call.params.values())
    assert jaxpr_as_fun(closed)(1.0) == [2.0]
    inner = jax.make_jaxpr(lambda x: x + 1)(1.0)
    assert any(isinstance(x, Literal) and x.val == 1 for x in inner.jaxpr.eqns[0].invars)


@canary("jax.experimental.layout.Layout", "jax.experimental.layout.with_layout_constraint")
def _layout():
    from jax.experimental.layout import Layout, with_layout_constraint

    x = jnp.arange(6.0).reshape(2, 3)
    same = jax.jit(lambda x: with_layout_constraint(x, Layout((0, 1))))(x)
    np.testing.assert_array_equal(same, x)


def _double(x, **options):
    from jax.experimental import pallas as pl

    def double(x, out):
        out[...] = 2 * x[...]

    return pl.pallas_call(double, jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x)


@canary("jax.experimental.pallas", "jax.experimental.pallas.tpu")
def _pallas():
    from jax.experimental.pallas import tpu

    x = jnp.arange(8.0)
    np.testing.assert_array_equal(_double(x, interpret=True), 2 * x)
    assert tpu.CompilerParams()


@canary("jax.experimental.pallas.triton")
def _triton():
    """Fails when JAX drops Triton. What could take its place: docs/benchmarks.md."""
    from jax.experimental.pallas import triton
    from jax.sharding import AbstractDevice, AbstractMesh

    double = jax.jit(lambda x: _double(x, compiler_params=triton.CompilerParams()))
    device = AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu")  # none is attached
    with (
        jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated")
        lowered = double.trace(jnp.arange(8.0)).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()


@canary("jax.experimental.multihost_utils")
def _multihost():
    from jax.experimental import multihost_utils

    assert int(multihost_utils.broadcast_one_to_all(np.int32(3))) == 3
    assert np.asarray(multihost_utils.process_allgather(np.int32(3))).ravel().tolist() == [3]


@canary("jax.experimental.topologies")
def _topologies():
    from jax.experimental import topologies

    assert callable(topologies.get_topology_desc)  # it needs a compiler that is not there


@canary("grain.experimental.ThreadPrefetchIterDataset")
def _grain():
    import grain

    dataset = grain.MapDataset.range(5).to_iter_dataset()
    ahead = grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=1)
    iterator = iter(ahead)
    assert list(itertools.islice(iterator, 5)) == list(range(5))
    iterator.close()


@canary("orbax.checkpoint.checkpoint_managers")
def _orbax():
    from orbax.checkpoint import checkpoint_managers

    best = checkpoint_managers.BestN(
        get_metric_fn=lambda metrics: metrics["accuracy"],
        n=1,
        keep_checkpoints_without_metrics=False,
    )
    latest = checkpoint_managers.LatestN(2)
    assert checkpoint_managers.AnyPreservationPolicy([latest, best])


def used() -> dict[str, Path]:
    """The non-public names that are imported or written out, and a file of each."""
    found = {}
    for folder in ("capsjax", "experiments"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.Attribute):
                    names = [ast.unparse(node)]
                for name in names:
                    if any(name == part or name.startswith(f"{part}.") for part in NOT_PUBLIC):
                        found[name] = file
    found.pop("grain.experimental", None)  # a part of the name that follows it
    return found


def test_each_use_has_a_canary():
    names = used()
    assert "jax.extend.core.Primitive" in names
    assert {name: file for name, file in names.items() if name not in CANARIES} == {}


def test_each_canary_is_of_something_used():
    assert set(CANARIES) - set(used()) == set()


@pytest.mark.parametrize("function", sorted(set(CANARIES.values()), key=lambda f: f.__name__))
def test_canary(function):
    function()
