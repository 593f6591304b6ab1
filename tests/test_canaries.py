"""What is used of other packages beyond their public interfaces, and which tests try it."""

import ast
import warnings

import jax
import jax.numpy as jnp

from tests.processes import ROOT
from tests.test_package import imports, parsed

NOT_PUBLIC = (
    "jax._src",
    "jax.experimental",
    "jax.extend",
    "jax.interpreters",
    "grain.experimental",
)
KERNELS = "tests/routing/kernels/test_rules.py"
TRIED = {
    "grain.experimental.ThreadPrefetchIterDataset": "tests/training/test_feed.py",
    "jax.experimental.layout.Layout": KERNELS,
    "jax.experimental.layout.with_layout_constraint": KERNELS,
    "jax.experimental.multihost_utils": "tests/runs/test_hosts.py",
    "jax.experimental.pallas": KERNELS,
    "jax.experimental.pallas.tpu": KERNELS,
    "jax.experimental.pallas.triton": "tests/test_canaries.py",
    "jax.experimental.topologies": "tests/experiments/test_compile.py",
    "jax.extend.core.Primitive": KERNELS,
    "jax.extend.core.jaxpr_as_fun": KERNELS,
    "jax.interpreters.ad": KERNELS,
    "jax.interpreters.batching": KERNELS,
    "jax.interpreters.mlir": KERNELS,
}


def used() -> set[str]:
    """The non-public names that are imported or written out."""
    found = set()
    for folder in ("capsjax", "experiments"):
        for tree in parsed(folder).values():
            found |= {name for name, _ in imports(tree)}
            found |= {ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    inside = tuple(f"{package}." for package in NOT_PUBLIC)
    return {name for name in found if name.startswith(inside)}


def test_each_use_is_known():
    assert used() == TRIED.keys()
    assert all((ROOT / file).exists() for file in TRIED.values())


def test_triton():
    """Fails when JAX drops it. What could take its place: docs/architecture.md."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton
    from jax.sharding import AbstractDevice, AbstractMesh

    def double(x, out):
        out[...] = 2 * x[...]

    x = jnp.arange(8.0)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    program = jax.jit(pl.pallas_call(double, shape, compiler_params=triton.CompilerParams()))
    device = AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu")  # none is attached
    with (
        jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated")
        lowered = program.trace(x).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()
