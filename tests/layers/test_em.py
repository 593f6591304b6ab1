import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from capsjax.layers import ConvCapsules, EMClassCapsules, EMRouting, coordinate_addition
from capsjax.routing import DenseVotes


def capsules(key=0, grid=(2, 3), channels=2):
    keys = jax.random.split(jax.random.key(key))
    poses = jax.random.normal(keys[0], (2, *grid, channels, 4))
    return poses, jax.random.uniform(keys[1], (2, *grid, channels))


def test_coordinates_are_added_to_the_last_column():
    votes = coordinate_addition(jnp.zeros((2, 4, 3, 5, 9)))
    matrices = votes.reshape(2, 4, 3, 5, 3, 3)
    np.testing.assert_allclose(matrices[0, :, 0, 0, 0, 2], 0.25)
    np.testing.assert_allclose(matrices[1, :, 0, 0, 0, 2], 0.75)
    np.testing.assert_allclose(matrices[:, 0, 0, 0, 1, 2], 0.125)
    np.testing.assert_allclose(matrices[0, 3, 2, 4, 1, 2], 0.875)
    others = matrices.at[..., :2, 2].set(0)
    np.testing.assert_array_equal(others, 0)


def test_class_capsules_share_weights_over_positions():
    layer = EMClassCapsules(2, 3, 4, num_iterations=2, rngs=nnx.Rngs(0))
    chex.assert_shape(layer.kernel, (2, 2, 3, 2))
    poses, activations = capsules()
    routed = layer(poses, activations)
    chex.assert_shape(routed.poses, (2, 3, 4))
    chex.assert_shape(routed.coupling, (2, 2 * 3 * 2, 3))
    chex.assert_shape(routed.activations, (2, 3))
    matrices = poses.reshape(*poses.shape[:-1], 2, 2)
    votes = jnp.einsum("nhwcax,cxjy->nhwcjay", matrices, layer.kernel[...])
    votes = coordinate_addition(votes.reshape(*votes.shape[:-2], 4)).reshape(2, 12, 3, 4)
    expected = layer.routing(DenseVotes(votes), activations.reshape(2, 12))
    chex.assert_trees_all_close(routed, expected, rtol=1e-4, atol=1e-5)


def test_convolutional_em_knows_whose_activation_is_whose():
    routing = EMRouting(3, num_iterations=2)
    layer = ConvCapsules(2, 4, 3, 4, form="matrix", routing=routing, rngs=nnx.Rngs(0))
    poses, activations = capsules(grid=(4, 5))
    silent = activations.at[:, 1, 2, 0].set(0)
    routed = layer(poses, layer.child_activations(silent))
    chex.assert_shape(routed.activations, (2, 2, 3, 3))
    # What a silent capsule votes for is of no consequence; what any other does is.
    moved = layer(poses.at[:, 1, 2, 0].add(1), layer.child_activations(silent))
    np.testing.assert_allclose(routed.poses, moved.poses, rtol=1e-4, atol=1e-5)
    moved = layer(poses.at[:, 1, 2, 1].add(1), layer.child_activations(silent))
    assert not np.allclose(routed.poses, moved.poses, atol=1e-2)


def test_costs_belong_to_parents():
    routing = EMRouting(3)
    routing.beta_activate[...] = jnp.array([-2000.0, 0, 2000.0])
    votes = jax.random.normal(jax.random.key(0), (6, 3, 4))
    activations = routing(votes, jnp.full(6, 0.5)).activations
    assert activations[0] < 0.3 < activations[1] < 0.7 < activations[2]


def test_a_higher_inverse_temperature_makes_activations_bolder():
    votes = jax.random.normal(jax.random.key(0), (6, 3, 4))

    def boldness(**options):
        activations = EMRouting(3, **options)(votes, jnp.full(6, 0.5)).activations
        return jnp.abs(activations - 0.5).max()

    assert boldness(inverse_temperature=1.0) > 10 * boldness()
