"""What is read out of compiled programs, on programs small enough to know the answer."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

pytestmark = pytest.mark.accelerators

SQUARE = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)


def summed_tanh(x, out):
    def add(i, total):
        return total + jnp.tanh(x[pl.ds(8 * i, 8), :])

    out[...] = lax.fori_loop(0, 32, add, jnp.zeros(out.shape, out.dtype))


def kernel(x):
    """Sums each 32 rows of 8; one block of 256 rows at a time."""
    rows = x.shape[0]
    return pl.pallas_call(
        summed_tanh,
        out_shape=jax.ShapeDtypeStruct((rows // 32, 128), jnp.float32),
        grid=(rows // 256,),
        in_specs=[pl.BlockSpec((256, 128), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
        name="summed_tanh",
    )(x)


def test_cycles_of_a_tpu_kernel_are_its_bundles_times_its_trips(compiled_for):
    cycles = {}
    for rows in (2048, 4096, 4096):  # also of what was compiled before
        shape = jax.ShapeDtypeStruct((rows, 128), jnp.float32)
        compiled = compiled_for("v5e:2x2", kernel, shape)
        ((name, found),) = compiled.tpu_kernels.items()
        assert name.startswith("summed_tanh")
        cycles[rows] = found.cycles
        assert compiled.cycles >= found.cycles
    # At least one bundle for each of 32 rounds in 8 and 16 places of the grid, and twice as many.
    assert cycles[2048] > 32 * 8
    assert cycles[4096] / cycles[2048] == pytest.approx(2, rel=0.2)


def test_every_call_of_a_tpu_kernel_is_counted(compiled_for):
    """Also of one that the compiler writes out once for all, and of one that it fuses."""
    shape = jax.ShapeDtypeStruct((2048, 128), jnp.float32)
    (one,) = compiled_for("v5e:2x2", kernel, shape).tpu_kernels.values()
    three = compiled_for("v5e:2x2", lambda *x: [kernel(y) for y in x], shape, shape, shape)
    assert [k.cycles for k in three.tpu_kernels.values()] == [one.cycles] * 3

    def scanned(x):
        return lax.scan(lambda y, _: (jnp.tanh(y), kernel(y)), x, None, length=50)

    (found,) = compiled_for("v5e:2x2", scanned, shape).tpu_kernels.values()
    assert found.cycles == pytest.approx(one.cycles, rel=0.1)
    assert compiled_for("v5e:2x2", scanned, shape).cycles > 50 * found.cycles


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_registers_of_a_gpu_kernel(compiled_for):
    def tanh(x):
        return pl.pallas_call(
            lambda x, out: out.__setitem__(..., jnp.tanh(x[...])),
            out_shape=SQUARE,
            grid=(16, 16),
            in_specs=[pl.BlockSpec((64, 64), lambda i, j: (i, j))],
            out_specs=pl.BlockSpec((64, 64), lambda i, j: (i, j)),
            name="tanh",
            compiler_params=triton.CompilerParams(),
        )(x)

    (found,) = compiled_for("h100", tanh, SQUARE).gpu_kernels
    assert found.name == "tanh"
    assert 8 <= found.registers <= 255
    assert found.spilled == 0


@pytest.mark.parametrize("target", ["v5e:2x2", "h100"])
def test_memory_and_what_is_moved(compiled_for, target):
    compiled = compiled_for(target, lambda x: x @ jnp.tanh(x @ x), SQUARE)
    size = 4 * 1024**2
    assert compiled.memory.arguments == compiled.memory.results == size
    # At the least it is read and written; a TPU has room on the chip for what is between.
    assert 2 * size <= compiled.bytes_moved <= 8 * size
    assert len(compiled.stores(1024**2)) >= 2
    assert compiled.stores(1024**2 + 1) == []
    assert any(cost.source.startswith("tests/accelerators/") for cost in compiled.costs)


def test_a_loop_takes_as_many_cycles_as_it_has_trips(compiled_for):
    def repeated(x, trips):
        return lax.fori_loop(0, trips, lambda _, y: jnp.tanh(x @ y), x)

    ten, twenty, forty = (
        compiled_for("v5e:2x2", lambda x, n=n: repeated(x, n), SQUARE).cycles for n in (10, 20, 40)
    )
    assert twenty > 1.5 * ten
    assert forty - twenty == 2 * (twenty - ten)


@pytest.mark.parametrize("target", ["v5e:2x2", "h100"])
def test_what_does_not_fit_names_its_largest_buffers(compiled_for, target):
    huge = jax.ShapeDtypeStruct((80_000, 80_000), jnp.float32)
    with pytest.raises(ValueError, match=r"GB too much; its largest buffers: .*f32\[80000,80000\]"):
        compiled_for(target, lambda x: (x @ x) @ (x.T @ x), huge)


def test_slices_of_no_such_size_are_refused(compiled_for):
    with pytest.raises(ValueError, match="unknown target 'v5e:2x3'"):
        compiled_for("v5e:2x3", jnp.tanh, SQUARE)
