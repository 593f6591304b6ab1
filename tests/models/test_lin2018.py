import math

import jax
import numpy as np
import pytest

from capsjax.evaluation.batches import outline
from capsjax.routing import dynamic_routing
from tests.models import building

SHAPE = (9, 9, 1)
SIZES = {"kernel_size": 3, "width": 1 / 8}


def build(name, **overrides):
    return building.build(name, SHAPE, 4, **SIZES | overrides)


@pytest.fixture(scope="module")
def images():
    return jax.random.uniform(jax.random.key(0), (2, 9, 9, 1))


def neurons(output):
    return {name: math.prod(made.shape[1:]) for name, made in output.features.items()}


@pytest.mark.parametrize("suffix", ["", "_deeper"])
def test_the_cnn_has_as_many_neurons_in_each_layer(suffix):
    def sizes(name):
        model = building.outline(f"{name}{suffix}", SHAPE, 4, **SIZES)
        return neurons(outline(model, SHAPE))

    capsnet, cnn = sizes("lin2018_capsnet"), sizes("lin2018_cnn")
    assert capsnet.pop("classes") == 4 * 16
    assert list(capsnet.values()) == list(cnn.values())


def test_every_layer_and_routing_is_read_by_name(images):
    output = build("lin2018_capsnet_deeper")(images, capture=True)
    assert list(output.features) == ["conv", "primary", "capsules1", "capsules2", "classes"]
    shapes = {name: routed.coupling.shape for name, routed in output.routed.items()}
    assert shapes == {"capsules1": (2, 3 * 3 * 4, 4), "capsules2": (2, 4, 4), "classes": (2, 4, 4)}
    np.testing.assert_array_equal(output.features["classes"], output.poses)
    np.testing.assert_allclose(output.scores, np.linalg.norm(output.poses, axis=-1), rtol=1e-5)


def test_iterations_and_update_rate_reach_every_routing(images):
    model = build("lin2018_capsnet", num_iterations=6, update_rate=0.01)
    output = model(images, capture=True)
    below = output.features["primary"].reshape(2, -1, 8)
    for name, layer in (("capsules1", model.capsules[0]), ("classes", model.classes)):
        expected = dynamic_routing(layer.votes(below), num_iterations=6, update_rate=0.01)
        np.testing.assert_allclose(
            output.routed[name].coupling, expected.coupling, rtol=1e-5, atol=1e-6
        )
        below = expected.poses
