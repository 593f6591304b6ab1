import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax import models
from capsjax.training.state import num_parameters, split

NAME = "sabour2017_capsnet"
TINY = {"width": 1 / 32}


def count(**overrides):
    model = nnx.eval_shape(
        lambda: models.create(NAME, (28, 28, 1), 10, rngs=nnx.Rngs(0), **overrides)
    )
    return num_parameters(split(model)[1])


def test_published_sizes():
    assert count() == 8_215_568
    assert count(routing_bias=True) == 8_215_568 + 160
    assert count(decoder=False) == 6_804_224


@pytest.fixture(scope="module")
def model():
    return models.create(NAME, (28, 28, 1), 10, rngs=nnx.Rngs(0), **TINY)


@pytest.fixture(scope="module")
def images():
    return jax.random.randint(jax.random.key(0), (3, 28, 28, 1), 0, 256).astype(jnp.uint8)


def test_output(model, images):
    output = model(images, capture=True)
    chex.assert_shape(output.scores, (3, 10))
    chex.assert_shape(output.poses, (3, 10, 16))
    chex.assert_shape(output.reconstruction, (3, 28, 28, 1))
    chex.assert_shape(output.routed["classes"].coupling, (3, 36, 10))
    np.testing.assert_allclose(
        output.scores, np.linalg.norm(output.poses, axis=-1), rtol=1e-5, atol=1e-7
    )
    assert not model(images).routed


def test_uint8_is_scaled(model, images):
    as_float = images.astype(jnp.float32) / 255
    chex.assert_trees_all_close(model(images), model(as_float), rtol=1e-6)


def test_default_mask_is_the_longest_capsule(model, images):
    output = model(images)
    mask = jax.nn.one_hot(output.scores.argmax(-1), 10)
    np.testing.assert_array_equal(output.reconstruction, model(images, mask=mask).reconstruction)
    other = model(images, mask=jnp.roll(mask, 1, axis=-1))
    assert not np.allclose(output.reconstruction, other.reconstruction)


def test_jit_gives_the_same(model, images):
    jitted = nnx.jit(lambda m, x: m(x))(model, images)
    chex.assert_trees_all_close(jitted, model(images), rtol=1e-4, atol=1e-5)


def test_other_input_sizes():
    model = models.create(NAME, (20, 33, 3), 5, rngs=nnx.Rngs(0), kernel_size=5, **TINY)
    output = model(jnp.zeros((2, 20, 33, 3)))
    chex.assert_shape(output.scores, (2, 5))
    chex.assert_shape(output.reconstruction, (2, 20, 33, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "sabour_capsnet"}, "did you mean 'sabour2017_capsnet'"),
        ({"widht": 2}, "did you mean 'width'"),
        ({"input_shape": (16, 28, 1)}, "smallest is 17×17"),
        ({"input_shape": (28, 28)}, "height, width, channels"),
        ({"num_classes": 1}, "num_classes must be at least 2"),
        ({"width": 0}, "width must be positive"),
        ({"num_iterations": 0}, "num_iterations must be positive"),
    ],
)
def test_bad_arguments(arguments, message):
    arguments = {"name": NAME, "input_shape": (28, 28, 1), "num_classes": 10} | arguments
    with pytest.raises(ValueError, match=message):
        models.create(**arguments, rngs=nnx.Rngs(0))


def test_bad_images(model):
    with pytest.raises(ValueError, match=r"\[n, 28, 28, 1\], got \[28, 28, 1\]"):
        model(jnp.zeros((28, 28, 1)))
    with pytest.raises(ValueError, match="uint8"):
        model(jnp.zeros((1, 28, 28, 1), jnp.int32))
