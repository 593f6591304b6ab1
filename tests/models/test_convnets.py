import chex
import jax.numpy as jnp
import numpy as np

from capsjax import models
from tests.models import building


def build(name, **overrides):
    sizes = {"width": 1 / 32, "kernel_size": 3} | overrides
    return building.build(name, (12, 14, 2), 3, **sizes)


def test_average_pooling_forgets_where():
    model = build("gu2021_convnet_avg")
    image = jnp.zeros((1, 12, 14, 2)).at[0, 5, 5].set(1)
    moved = jnp.roll(image, (2, 2), axis=(1, 2))  # by the stride, away from the borders
    np.testing.assert_allclose(model(image).scores, model(moved).scores, rtol=1e-5, atol=1e-7)


def test_output_and_capture():
    output = build("gu2021_convnet_fc")(jnp.ones((2, 12, 14, 2)), capture=True)
    chex.assert_shape(output.scores, (2, 3))
    assert output.score_kind is models.ScoreKind.LOGITS
    assert output.poses is None
    assert output.reconstruction is None
    shapes = {name: made.shape[1:] for name, made in output.features.items()}
    assert shapes == {
        "conv1": (10, 12, 8),
        "conv2": (8, 10, 8),
        "conv3": (6, 8, 4),
        "dense1": (10,),
        "dense2": (6,),
    }
    assert all((made >= 0).all() for made in output.features.values())
