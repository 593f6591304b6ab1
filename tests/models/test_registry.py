"""Names, options, and networks of one's own."""

import pickle
from dataclasses import dataclass

import jax.numpy as jnp
import pytest
from flax import nnx

from capsjax import models
from tests.models.building import outline


@dataclass(frozen=True)
class LinearConfig:
    scale: float = 1.0


class Linear(nnx.Linear):
    def __init__(self, input_shape, num_classes, config, *, rngs):
        super().__init__(input_shape[-1], num_classes, rngs=rngs)
        self.scale = config.scale


def test_a_registered_network_is_like_any_other():
    models.register("mine", Linear, LinearConfig())
    assert "mine" in models.names()
    assert models.options("mine") == {"scale": 1.0}
    model = models.create("mine", (4, 4, 2), 3, rngs=nnx.Rngs(0), scale=2.0)
    assert model.scale == 2
    assert model(jnp.ones((5, 2))).shape == (5, 3)
    models.register("mine", Linear, LinearConfig(scale=3.0))  # the latest counts
    assert models.options("mine") == {"scale": 3.0}
    assert models.names().count("mine") == 1


def test_bad_registrations():
    with pytest.raises(ValueError, match="is a published network"):
        models.register("sabour2017_capsnet", Linear, LinearConfig())
    for config in (LinearConfig, {"scale": 1.0}):
        with pytest.raises(TypeError, match="dataclass instances"):
            models.register("mine", Linear, config)
    for scale in ((1.0, (2.0,)), [1.0], jnp.tanh):
        with pytest.raises(ValueError, match="and tuples of them, got scale = "):
            models.register("mine", Linear, LinearConfig(scale))


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("choi2019_mnist", {}),
        ("slots_tetrominoes", {}),
        ("tsai2020_em_cifar10_simple", {}),
        ("sabour2017_capsnet", {"primary_relu": True}),
    ],
)
def test_networks_can_be_pickled(name, overrides):
    graphdef = nnx.graphdef(outline(name, **overrides))
    assert pickle.loads(pickle.dumps(graphdef)) == graphdef


def test_lists_are_tuples():
    sizes = {"kernel_size": 3, "width": 1 / 32, "decoder_features": [128, 160]}
    model = outline("sabour2017_capsnet", (12, 12, 1), 3, **sizes)
    assert [layer.out_features for layer in model.decoder.layers[:2]] == [4, 5]
