import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.functional import exponential_squash
from capsjax.routing import uniform_routing
from tests.models import building

NAME = "sabour2017_capsnet"
TINY = {"width": 1 / 32}


@pytest.fixture(scope="module")
def model():
    return building.build(NAME, (28, 28, 1), 10, **TINY)


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
    shapes = {name: made.shape[1:] for name, made in output.features.items()}
    assert shapes == {"conv": (20, 20, 8), "primary": (6, 6, 1, 8), "classes": (10, 16)}
    assert not model(images).routed
    assert not model(images).features


def test_default_mask_is_the_longest_capsule(model, images):
    output = model(images)
    mask = jax.nn.one_hot(output.scores.argmax(-1), 10)
    np.testing.assert_array_equal(output.reconstruction, model(images, mask=mask).reconstruction)
    other = model(images, mask=jnp.roll(mask, 1, axis=-1))
    assert not np.allclose(output.reconstruction, other.reconstruction)


def build(**overrides):
    return building.build(NAME, (28, 28, 1), 10, **TINY, **overrides)


def test_a_shared_transform_sums_the_children_first(images):
    model = build(routing="uniform", shared_transform=True)
    output = model(images, capture=True)
    total = output.features["primary"].reshape(3, -1, 8).sum(axis=1)
    votes = jnp.einsum("nd,djp->njp", total, model.classes.kernel[0])
    expected = uniform_routing(votes[:, None]).poses  # as if of one child
    np.testing.assert_allclose(output.poses, expected, rtol=1e-4, atol=1e-6)


def test_without_squash_capsules_stay_as_they_are(images):
    model = build(routing="uniform", squash=False)
    output = model(images, capture=True)
    maps = model.primary.conv(output.features["conv"])
    np.testing.assert_array_equal(output.features["primary"].reshape(maps.shape), maps)
    children = maps.reshape(3, -1, 8)
    expected = jnp.einsum("nid,idjp->njp", children, model.classes.kernel[...]) / 10
    np.testing.assert_allclose(output.poses, expected, rtol=1e-4, atol=1e-5)


def test_the_exponential_squash(images):
    output = build(squash_form="exponential", routing="uniform")(images, capture=True)
    plain = build(squash=False, routing="uniform")(images, capture=True)
    expected = exponential_squash(plain.features["primary"])
    np.testing.assert_allclose(output.features["primary"], expected, rtol=1e-5, atol=1e-7)


def test_relu_after_the_second_convolution(images):
    output = build(primary_relu=True, squash=False)(images, capture=True)
    plain = build(squash=False)(images, capture=True)
    np.testing.assert_array_equal(output.features["primary"], nnx.relu(plain.features["primary"]))
    assert not np.allclose(output.scores, plain.scores)


def test_normal_reconstruction_ignores_the_mask(images):
    model = build(reconstruction="normal")
    one, other = (model(images, mask=jax.nn.one_hot(jnp.full(3, k), 10)) for k in (1, 2))
    np.testing.assert_array_equal(one.reconstruction, other.reconstruction)
    everything = model.decoder(one.poses, jnp.ones((3, 10)))
    np.testing.assert_array_equal(one.reconstruction, everything)
