"""A batch in blocks, the choice of their size, and a batch over devices."""

import contextlib
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from capsjax.routing import (
    LinearVotes,
    blocked_vmap,
    choose_block_size,
    dynamic_routing,
    in_blocks,
    over_devices,
)


def test_memory_is_that_of_a_block_forward_and_backward():
    kernel = jax.random.normal(jax.random.key(0), (64, 8, 10, 16))

    def temporary(batch, block_size):
        def loss(poses, kernel):
            def poses_of(x):
                return dynamic_routing(LinearVotes(x, kernel)).poses

            return jnp.sum(blocked_vmap(poses_of, block_size)(poses))

        poses = jnp.zeros((batch, 64, 1, 8))
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(poses, kernel).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    small, large, whole = temporary(16, 4), temporary(64, 4), temporary(64, 64)
    poses_bytes = 48 * 64 * 8 * 4
    assert large - small < 3 * poses_bytes
    assert large < whole / 3


@pytest.mark.parametrize("block_size", [1, 2, 3, 8])
def test_blocks_on_explicit_axes(block_size):
    batch = jax.random.normal(jax.random.key(0), (6, 3))
    weights = jax.random.normal(jax.random.key(1), (3, 4))

    def loss(weights, batch):
        blocked = in_blocks(lambda x: {"y": jnp.tanh(x @ weights)}, batch, block_size)["y"]
        mapped = blocked_vmap(lambda x: jnp.sin(x @ weights), block_size)(batch)
        return jnp.sum(blocked * mapped * jnp.arange(6.0)[:, None])  # in their order

    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        divided = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))
        gradients = jax.jit(jax.grad(loss, (0, 1)))(weights, divided)
        assert jax.typeof(gradients[1]).sharding.spec[0] == "data"

    def whole(weights, batch):
        sums = jnp.tanh(batch @ weights) * jnp.sin(batch @ weights)
        return jnp.sum(sums * jnp.arange(6.0)[:, None])

    expected = jax.grad(whole, (0, 1))
    for ours, theirs in zip(gradients, expected(weights, batch), strict=True):
        np.testing.assert_allclose(jax.device_get(ours), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", ["data", ("data", "model")], ids=str)
def test_over_devices_of_automatic_axes(axes):
    poses = jax.random.normal(jax.random.key(0), (8, 6, 2, 2))
    kernel = jax.random.normal(jax.random.key(1), (6, 2, 4, 2))

    def loss(kernel, poses, wrap=lambda f: f):
        def route(kernel, batch):
            return dynamic_routing(LinearVotes(batch["poses"], kernel))

        return jnp.sum(jnp.sin(wrap(route)(kernel, {"poses": poses}).poses))

    expected = jax.value_and_grad(loss, (0, 1))(kernel, poses)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    for outer, given in ((contextlib.nullcontext(), mesh), (jax.set_mesh(mesh), None)):
        with outer:
            divided = jax.device_put(poses, NamedSharding(mesh, PartitionSpec(axes)))
            wrapped = partial(loss, wrap=lambda f, given=given: over_devices(f, axes, mesh=given))
            f = jax.jit(jax.value_and_grad(wrapped, (0, 1)))
            copies = jax.device_put(kernel, NamedSharding(mesh, PartitionSpec()))
            assert "manual_computation" in f.lower(copies, divided).as_text()
            found = jax.device_get(f(copies, divided))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, expected)


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8])
def test_blocks_change_neither_values_nor_gradients(block_size):
    weights = jax.random.normal(jax.random.key(0), (3, 4))
    batch = {"x": jax.random.normal(jax.random.key(1), (5, 3)), "y": jnp.arange(5.0)}

    def loss(weights, batch, block_size):
        def f(batch):
            return jnp.tanh(batch["x"] @ weights), batch["y"] ** 2

        out = in_blocks(f, batch, block_size)
        return jnp.sum(out[0]) * jnp.sum(out[1]), out

    def run(size):
        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        return jax.jit(gradient, static_argnums=2)(weights, batch, size)

    chex.assert_trees_all_close(run(block_size), run(None), rtol=1e-4, atol=1e-5)


def test_several_arguments_and_pytrees():
    def f(x, y):
        return {"sum": x + y["a"], "product": x * y["a"]}

    x, y = jnp.arange(7.0), {"a": jnp.arange(7.0) + 1}
    out = blocked_vmap(f, 3)(x, y)
    np.testing.assert_allclose(out["sum"], x + y["a"])
    np.testing.assert_allclose(out["product"], x * y["a"])


def test_choice_of_block():
    assert choose_block_size(100, budget=1000) == 10
    assert choose_block_size(2**40) == 1
    assert choose_block_size(100, shared_bytes=2000, budget=1000) == 20
    assert choose_block_size(100, shared_bytes=500, budget=1000) == 10


def test_a_program_for_batches_of_any_size_has_no_blocks():
    exported = jax.export.export(jax.jit(lambda x: in_blocks(jnp.sin, x, 2)))(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 3"), jnp.float32)
    )
    x = jnp.arange(15, dtype=jnp.float32).reshape(5, 3)
    np.testing.assert_allclose(exported.call(x), jnp.sin(x), rtol=1e-6)
