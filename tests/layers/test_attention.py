import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from capsjax.layers import AttentionConvCapsules, AttentionFullCapsules, CapsuleActivation


def filled(layer):
    """`layer` with biases that are not zero."""
    for bias in (layer.bias, layer.activation.bias):
        bias[...] = 0.1 * jax.random.normal(jax.random.key(7), bias.shape)
    return layer


@pytest.mark.parametrize(("strides", "padding"), [(2, "SAME"), (1, "VALID")])
def test_conv_caps_by_the_papers_algorithm(strides, padding):
    layer = filled(
        AttentionConvCapsules(2, 3, 2, 4, strides=strides, padding=padding, rngs=nnx.Rngs(0))
    )
    poses = jax.random.normal(jax.random.key(0), (2, 5, 6, 2, 3))
    routed = layer(poses)
    for n in range(2):
        transformed = []
        for m in range(2):
            kernel = layer.kernel[m, :, :, n].reshape(3, 3, 3, 4)
            convolved = lax.conv_general_dilated(
                poses[..., m, :],
                kernel,
                (strides, strides),
                padding,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            transformed.append(convolved + layer.bias[m, n])
        transformed = jnp.stack(transformed, axis=-2)
        logits = jnp.einsum("...md,dmk->...k", transformed, layer.attention[n])
        coupling = jax.nn.softmax(logits)
        s = jnp.sum(coupling[..., None] * transformed, axis=-2)
        expected = jnp.tanh(s @ layer.activation.kernel[n] + layer.activation.bias[n])
        np.testing.assert_allclose(routed.coupling[..., n], coupling, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(routed.poses[..., n, :], expected, rtol=1e-4, atol=1e-5)


def test_full_caps_are_conv_caps_with_a_window_of_the_whole_map():
    full = filled(AttentionFullCapsules((3, 3), 2, 4, 5, 6, rngs=nnx.Rngs(0)))
    conv = AttentionConvCapsules(2, 4, 5, 6, kernel_size=3, padding="VALID", rngs=nnx.Rngs(1))
    nnx.update(conv, nnx.state(full))
    poses = jax.random.normal(jax.random.key(0), (2, 3, 3, 2, 4))
    chex.assert_shape(full(poses).poses, (2, 5, 6))
    chex.assert_shape(full(poses).coupling, (2, 2, 5))
    chex.assert_trees_all_close(
        full(poses), jax.tree.map(lambda x: x[:, 0, 0], conv(poses)), rtol=1e-5, atol=1e-6
    )


def test_transforms_start_as_keras_convolutions():
    layer = AttentionConvCapsules(8, 16, 8, 32, rngs=nnx.Rngs(0))
    limit = np.sqrt(6 / (9 * 16 + 9 * 32))
    assert 0.99 * limit < jnp.abs(layer.kernel[...]).max() <= limit
    limit = np.sqrt(6 / (32 * 8 + 32 * 8))
    assert 0.99 * limit < jnp.abs(layer.attention[...]).max() <= limit
    limit = np.sqrt(6 / (32 + 32))
    assert 0.99 * limit < jnp.abs(layer.activation.kernel[...]).max() <= limit


def test_capsule_activation_maps_each_channel_by_its_own():
    layer = CapsuleActivation(3, 4, rngs=nnx.Rngs(0))
    layer.bias[...] = jnp.arange(12.0).reshape(3, 4)
    poses = jax.random.normal(jax.random.key(0), (2, 5, 3, 4))
    for n in range(3):
        expected = jnp.tanh(poses[..., n, :] @ layer.kernel[n] + layer.bias[n])
        np.testing.assert_allclose(layer(poses)[..., n, :], expected, rtol=1e-5, atol=1e-6)
