import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax import models
from tests.models import building

SHAPE = (12, 14, 2)


def build(name, **overrides):
    return building.build(name, SHAPE, 4, kernel_size=3, width=1 / 16, **overrides)


@pytest.fixture(scope="module")
def images():
    return jax.random.uniform(jax.random.key(0), (3, *SHAPE))


def test_output_and_capture(images):
    output = build("gu2021_convnet_fc")(images, capture=True)
    chex.assert_shape(output.scores, (3, 4))
    assert output.score_kind is models.ScoreKind.LOGITS
    assert output.poses is None
    assert output.reconstruction is None
    shapes = {name: made.shape[1:] for name, made in output.features.items()}
    convolutions = {"conv1": (10, 12, 16), "conv2": (8, 10, 16), "conv3": (6, 8, 8)}
    assert shapes == convolutions | {"dense1": (20,), "dense2": (12,)}
    assert all((made >= 0).all() for made in output.features.values())


def test_scores_are_sums_of_each_classs_units(images):
    output = build("gu2021_convnet_cr")(images)
    assert output.score_kind is models.ScoreKind.LOGITS
    chex.assert_shape(output.reconstruction, (3, *SHAPE))
    np.testing.assert_allclose(output.scores, output.poses.sum(-1), rtol=1e-5, atol=1e-6)
    assert (output.poses < 0).any(), "units are not rectified"


def test_a_linear_classifier_and_a_decoder_that_sees_all(images):
    model = build("gu2021_convnet_r")
    output = model(images, mask=jax.nn.one_hot(jnp.zeros(3, int), 4))
    np.testing.assert_array_equal(output.scores, model.linear(output.poses.reshape(3, -1)))
    np.testing.assert_array_equal(output.reconstruction, model(images).reconstruction)


def test_with_squash_it_is_capsnet_without_routing(images):
    """Gu et al. 2021, section 3.3; the share 1/J of uniform routing is part of the kernel."""
    convnet = build("gu2021_convnet_cr_sf")
    capsnet = build("gu2021_capsnet_nor", routing_bias=True)
    capsnet.conv, capsnet.primary.conv = convnet.convs
    capsnet.classes.kernel[...] = 4 * convnet.dense.kernel[...].reshape(-1, 8, 4, 16)
    capsnet.classes.bias[...] = convnet.dense.bias[...].reshape(4, 16)
    capsnet.decoder = convnet.decoder
    chex.assert_trees_all_close(convnet(images), capsnet(images), rtol=1e-4, atol=1e-5)
    assert convnet(images).score_kind is models.ScoreKind.LENGTHS
