import chex
import jax
import numpy as np
import pytest
from flax import nnx

from tests.models.building import build

# 12×12 images, 8 and 4 features, 2 channels of capsules of 4 and 6.
TINY = {"features": 4, "channels": 2, "primary_pose": 4, "pose_size": 6, "decoder_features": (8,)}


def tiny(**overrides):
    model = build("choi2019_cifar10", (12, 11, 3), 5, **TINY | overrides)
    model.eval()
    return model


@pytest.fixture(scope="module")
def model():
    return tiny(num_conv_caps=2)


@pytest.fixture(scope="module")
def images():
    return jax.random.uniform(jax.random.key(0), (4, 12, 11, 3))


def test_output(model, images):
    output = model(images, capture=True)
    chex.assert_shape(output.scores, (4, 5))
    chex.assert_shape(output.poses, (4, 5, 6))
    chex.assert_shape(output.reconstruction, (4, 12, 11, 3))
    assert {name: x.shape[1:] for name, x in output.features.items()} == {
        "conv": (12, 11, 4),
        "primary": (6, 6, 2, 4),
        "conv_caps1": (3, 3, 2, 6),
        "conv_caps2": (3, 3, 2, 6),
        "classes": (5, 6),
    }
    chex.assert_shape(output.routed["conv_caps2"].coupling, (4, 3, 3, 2, 2))
    chex.assert_shape(output.routed["classes"].coupling, (4, 2, 5))
    lengths = np.linalg.norm(output.poses, axis=-1)
    np.testing.assert_allclose(output.scores, lengths / np.sqrt(6), rtol=1e-5)
    assert not model(images).features


def test_all_but_the_first_conv_caps_add_their_input(model, images):
    features = model(images, capture=True).features
    added = features["conv_caps2"] - features["conv_caps1"]
    np.testing.assert_allclose(
        added, model.conv_caps[1](features["conv_caps1"]).poses, rtol=1e-4, atol=1e-5
    )


def test_dropout_of_an_image_depends_on_its_own_key(model, images):
    keys = jax.random.split(jax.random.key(1), 4)
    forward = nnx.jit(lambda model, images, keys: model(images, keys=keys).scores)
    scores = forward(model, images, keys)
    other = forward(model, images, keys.at[0].set(jax.random.key(9)))
    np.testing.assert_allclose(other[1:], scores[1:], rtol=1e-6)
    assert not np.allclose(other[0], scores[0], atol=1e-3)
