"""Runs a test in float32 and, with 64-bit types enabled, in float64."""

import pytest

# JAX is imported in the fixtures: compilers of accelerators are found only before its import.


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    import jax

    with jax.enable_x64(request.param == "float64"):
        yield jax.numpy.dtype(request.param)


@pytest.fixture
def float64():
    import jax

    with jax.enable_x64(True):
        yield jax.numpy.dtype("float64")
