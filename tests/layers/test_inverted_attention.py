from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType

from capsjax.layers import (
    ActivatedInvertedAttention,
    ConvCapsules,
    DenseCapsules,
    InvertedAttention,
    InvertedAttentionStack,
    inverted_attention_init,
)
from capsjax.layers.inverted_attention import GridPoseNorm
from capsjax.routing import over_devices

D = 4


def routing(parents, activated):
    rngs = nnx.Rngs(0)
    if activated:
        return ActivatedInvertedAttention(parents, D, rngs=rngs)
    return InvertedAttention(D, rngs=rngs)


def layers(activated=False, form="matrix"):
    rngs = nnx.Rngs(0)
    options = {"form": form, "kernel_init": inverted_attention_init, "rngs": rngs}
    return {
        "conv": ConvCapsules(2, D, 3, D, strides=2, routing=routing(3, activated), **options),
        "hidden": DenseCapsules(12, D, 4, D, routing=routing(4, activated), **options),
        "classes": DenseCapsules(4, D, 2, D, routing=routing(2, activated), **options),
    }


def primary():
    return jax.random.normal(jax.random.key(0), (5, 5, 5, 2, D))


def run(layers, poses=None, activations=None, capture=False, **options):
    stack = InvertedAttentionStack(layers, **options)
    poses = primary() if poses is None else poses
    return nnx.jit(lambda s, p, a: s(p, a, capture=capture))(stack, poses, activations)


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_couplings_over_devices(schedule):
    stack = InvertedAttentionStack(layers(), schedule=schedule)
    mesh = jax.make_mesh((5,), ("data",), axis_types=(AxisType.Auto,))
    wrapped = over_devices(lambda stack, poses: stack(poses, capture=True), "data", mesh=mesh)
    found, expected = jax.jit(wrapped)(stack, primary()), stack(primary(), capture=True)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, expected)


def test_concurrent_routing_by_the_papers_procedure():
    stack = layers()
    routed = run(stack, num_iterations=2, capture=True)
    conv, hidden, classes = stack.values()
    first = conv(primary()).poses
    second = hidden(first.reshape(5, 12, D)).poses
    third = classes(second).poses
    # All layers at once, from the values of the iteration before.
    expected = {
        "conv": conv(primary(), first),
        "hidden": hidden(first.reshape(5, 12, D), second),
        "classes": classes(second, third),
    }
    chex.assert_trees_all_close(routed, expected, rtol=1e-4, atol=1e-5)
    chex.assert_shape(routed["conv"].coupling, (5, 2, 2, 18, 3))


def test_sequential_routing_finishes_a_layer_first():
    stack = layers()
    routed = run(stack, num_iterations=2, schedule="sequential")
    conv, hidden, _ = stack.values()
    poses = conv(primary(), conv(primary()).poses).poses
    np.testing.assert_allclose(routed["conv"].poses, poses, rtol=1e-4, atol=1e-5)
    poses = poses.reshape(5, 12, D)
    poses = hidden(poses, hidden(poses).poses).poses
    np.testing.assert_allclose(routed["hidden"].poses, poses, rtol=1e-4, atol=1e-5)


def test_at_a_fixed_point_another_iteration_changes_nothing():
    stack = layers()
    fixed = run(stack, schedule="fixed_point")
    conv, hidden, _ = stack.values()
    below = fixed["conv"].poses
    np.testing.assert_allclose(conv(primary(), below).poses, below, atol=1e-2)
    again = hidden(below.reshape(5, 12, D), fixed["hidden"].poses).poses
    np.testing.assert_allclose(again, fixed["hidden"].poses, atol=1e-2)


def test_block_size_changes_nothing():
    stack = layers()
    del stack["hidden"]
    stack["classes"] = DenseCapsules(
        12, D, 2, D, form="matrix", routing=routing(2, False), rngs=nnx.Rngs(0)
    )

    def value_and_gradients(**options):
        graphdef, params = nnx.split(InvertedAttentionStack(stack, **options))

        @jax.jit
        def run(params, poses):
            def loss(params, poses):
                routed = nnx.merge(graphdef, params)(poses, capture=True)
                return jnp.sum(jnp.sin(routed["classes"].poses)), routed

            return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, poses)

        (value, routed), grads = run(params, primary())
        return value, routed, jax.tree.leaves(grads)

    expected = value_and_gradients()
    other = value_and_gradients(block_size=2)
    chex.assert_trees_all_close(other, expected, rtol=1e-3, atol=1e-4)


def test_block_size_changes_nothing_with_activations():
    stack = layers(activated=True)
    activations = jax.random.uniform(jax.random.key(1), (5, 5, 5, 2))
    expected = run(stack, activations=activations)
    other = run(stack, activations=activations, block_size=2)
    chex.assert_trees_all_close(other, expected, rtol=1e-3, atol=1e-4)


def test_activations_weigh_votes():
    stack = layers(activated=True)
    ones = jnp.ones((5, 5, 5, 2))
    routed = run(stack, activations=ones.at[:, 2, 2, 0].set(0))
    assert routed["classes"].activations.shape == (5, 2)
    moved = run(stack, primary().at[:, 2, 2, 0].add(1), ones.at[:, 2, 2, 0].set(0))
    chex.assert_trees_all_close(routed, moved, rtol=1e-4, atol=1e-5)


def test_activations_of_many_children_are_not_saturated():
    """With λ = 0.01 the activations of parents of 800 children were 1 to the last bit."""
    rngs = nnx.Rngs(0)
    routing = ActivatedInvertedAttention(10, 16, rngs=rngs)
    options = {"form": "matrix", "kernel_init": inverted_attention_init, "rngs": rngs}
    layer = DenseCapsules(800, 16, 10, 16, routing=routing, **options)
    poses = jax.random.normal(jax.random.key(0), (2, 800, 16))
    activations = jnp.full((2, 800), 0.5)

    @nnx.jit
    def twice(layer):
        first = layer(poses, None, activations)
        return first.activations, layer(poses, first.poses, activations).activations

    for found in twice(layer):
        assert 0.1 < found.min() <= found.max() < 0.95


def test_couplings_are_returned_on_request_only():
    assert run(layers())["conv"].coupling is None


@pytest.mark.parametrize(("shape", "std"), [((800, 4, 10, 4), 0.0559), ((800, 16, 10, 16), 0.0280)])
def test_initial_kernels(shape, std):
    kernel = inverted_attention_init(jax.random.key(0), shape)
    np.testing.assert_allclose(kernel.std(), std, rtol=0.05)


def test_norm_of_a_grid_by_products_is_layer_norm():
    norm = GridPoseNorm(4, rngs=nnx.Rngs(0))
    norm.scale[...] = jnp.asarray([1.0, 2.0, -1.0, 0.5])
    norm.bias[...] = jnp.asarray([0.0, 1.0, 2.0, 3.0])
    poses = 3 + jax.random.normal(jax.random.key(0), (2, 3, 3, 5, 4))

    def loss(f, poses):
        return jnp.sum(jnp.sin(f(poses)))

    np.testing.assert_allclose(norm._by_products(poses), norm(poses), atol=1e-4)
    np.testing.assert_allclose(
        *(jax.grad(partial(loss, f))(poses) for f in (norm._by_products, norm)), atol=3e-4
    )
    narrow = poses.astype(jnp.bfloat16)
    assert norm._by_products(narrow).dtype == norm(narrow).dtype
