import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.layers import conv2d, convolution
from capsjax.layers.convolution import convolve, convolve_native, convolve_patches


def arrays(dtype=np.float32):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(3, 11, 10, 3)).astype(dtype)
    return jnp.asarray(images), jnp.asarray(rng.normal(size=(3, 3, 3, 5)).astype(dtype))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_all_forms_agree_in_value_and_gradients(stride, padding, monkeypatch):
    images, kernel = arrays()

    def value_and_gradients(function):
        def loss(images, kernel):
            out = function(images, kernel, stride, padding)
            return jnp.sum(jnp.sin(out)), out

        return jax.value_and_grad(loss, (0, 1), has_aux=True)(images, kernel)

    # As `convolve` on a CPU: a block of two images, and what is left over.
    monkeypatch.setattr(convolution, "choose_block_size", lambda size, shared_bytes: 2)
    for function in (convolve_patches, convolve):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            value_and_gradients(function),
            value_and_gradients(convolve_native),
        )


def test_the_platform_chooses():
    def program(platform):
        traced = jax.jit(lambda *a: convolve(*a, stride=2)).trace(*arrays())
        return traced.lower(lowering_platforms=(platform,)).as_text()

    assert "stablehlo.convolution" not in program("cpu")
    for platform in ("cuda", "tpu"):
        assert "stablehlo.convolution" in program(platform)


@pytest.mark.parametrize("padding", ["SAME", "VALID", 1])
def test_layer_is_an_nnx_conv(padding):
    images, _ = arrays()
    layer = conv2d(3, 5, 3, strides=2, padding=padding, rngs=nnx.Rngs(0))
    plain = nnx.Conv(3, 5, (3, 3), strides=(2, 2), padding=padding, rngs=nnx.Rngs(0))
    np.testing.assert_allclose(layer(images), plain(images), rtol=1e-5, atol=1e-6)
