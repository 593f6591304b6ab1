"""Runs a test in float32 and, with 64-bit types enabled, in float64."""

import jax
import jax.numpy as jnp
import pytest


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield jnp.dtype("float64")
