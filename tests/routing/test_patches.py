"""Convolutional use: patches, the sum of their votes, softmax over windows."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from capsjax.routing import WindowVotes, em_routing, pose_patches, softmax_over_windows


@pytest.mark.parametrize(("padding", "stride"), [("VALID", 2), ("SAME", 2), ("SAME", 1)])
def test_patches_are_those_of_a_convolution(padding, stride):
    poses = jax.random.normal(jax.random.key(0), (2, 6, 5, 3, 2, 2))
    patches = pose_patches(poses, 3, stride=stride, padding=padding)
    # The filters of an identity convolution pick the same children in the same order.
    maps = poses.reshape(2, 6, 5, 12)
    identity = jnp.eye(9 * 12).reshape(3, 3, 12, 9 * 12)
    expected = jax.lax.conv_general_dilated(
        maps, identity, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(patches.reshape(expected.shape), expected, atol=1e-6)


def test_votes_of_windows_are_a_pytree():
    poses, kernel = jnp.ones((2, 4, 4, 3, 2, 2)), jnp.ones((27, 2, 4, 3))
    votes = WindowVotes(poses, kernel, 3)
    summed = jax.jit(lambda votes: votes.total())(votes)
    np.testing.assert_allclose(summed, votes.total(), rtol=1e-5)


def test_patches_of_vectors_and_activations():
    vectors = jnp.arange(2 * 4 * 4 * 3 * 5.0).reshape(2, 4, 4, 3, 5)
    patches = pose_patches(vectors, 3, pose_axes=1)
    assert patches.shape == (2, 2, 2, 27, 5)
    np.testing.assert_array_equal(patches[0, 1, 0, 5], vectors[0, 1, 1, 2])
    numbers = pose_patches(vectors[..., 0], 3, pose_axes=0)
    np.testing.assert_array_equal(numbers, patches[..., 0])


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_softmax_over_windows_splits_each_child_once(padding):
    grid, channels, window, stride = (5, 4), 2, 3, 2
    cells = jnp.arange(5 * 4 * channels, dtype=jnp.float32).reshape(5, 4, channels) + 1
    identity = pose_patches(cells, window, stride=stride, padding=padding, pose_axes=0)
    logits = jax.random.normal(jax.random.key(0), (*identity.shape, 3))
    normalize = partial(
        softmax_over_windows, grid=grid, window=window, stride=stride, padding=padding
    )
    # As a normaliser of EM, from the first M-step on.
    votes = jax.random.normal(jax.random.key(1), (1, *logits.shape, 4))
    costs = jnp.ones(votes.shape[:-2]), jnp.zeros(3), jnp.zeros(3)
    shares = [
        em_routing(votes, *costs, num_iterations=n, normalize=normalize).coupling[0] for n in (1, 2)
    ]
    for coupling in (jnp.exp(normalize(logits[None])[0]), *shares):
        for child in np.unique(identity):
            if child:  # 0 is padding
                total = np.sum(np.asarray(coupling)[np.asarray(identity) == child])
                np.testing.assert_allclose(total, 1, rtol=1e-5)


def test_softmax_over_windows_on_explicit_axes():
    logits = jax.random.normal(jax.random.key(0), (2, 3, 3, 9 * 2, 4))

    def loss(logits):
        weights = jnp.sin(jnp.arange(float(logits.size))).reshape(logits.shape)
        return jnp.sum(weights * softmax_over_windows(logits, (5, 5), 3) ** 2)

    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        divided = jax.device_put(logits, NamedSharding(mesh, PartitionSpec("data")))
        gradient = jax.jit(jax.grad(loss))(divided)
        assert jax.typeof(gradient).sharding.spec[0] == "data"
    np.testing.assert_allclose(jax.device_get(gradient), jax.grad(loss)(logits), atol=1e-4)


@pytest.mark.parametrize(
    "types",
    [(jnp.float32,) * 2, (jnp.bfloat16, jnp.float32), (jnp.float32, jnp.bfloat16)],
    ids=["same", "poses", "kernel"],
)
def test_totals_of_windows_of_mixed_types(types):
    grid = jax.random.normal(jax.random.key(0), (2, 6, 5, 3, 3, 2)).astype(types[0])
    kernel = jax.random.normal(jax.random.key(1), (27, 2, 4, 5)).astype(types[1])
    wide = WindowVotes(grid.astype(jnp.float32), kernel.astype(jnp.float32), 3, stride=2)
    total = WindowVotes(grid, kernel, 3, stride=2).total()
    assert total.dtype == jnp.float32
    np.testing.assert_allclose(total, jnp.sum(wide.dense(), axis=-3), rtol=1e-4, atol=1e-4)
