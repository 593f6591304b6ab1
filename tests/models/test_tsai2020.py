import chex
import jax
import numpy as np
import pytest

from capsjax import models
from capsjax.models import ScoreKind
from tests.models.building import apply, build, traced

TINY = {"features": 8, "channels": 2}


def tiny(name, size=13, **overrides):
    shape = (size, size + 1, models.lookup(name).input_shape[-1])
    return build(name, shape, 3, **TINY | overrides)


def images(size=13, channels=3, num=4):
    return jax.random.uniform(jax.random.key(0), (num, size, size + 1, channels))


def test_the_tables_shapes():
    """The right columns of tables 9 and 11."""

    def shapes(name):
        features = traced(name, num_classes=100).features
        return {name: x.shape[1:] for name, x in features.items()}

    assert shapes("tsai2020_cifar100_simple") == {
        "backbone": (16, 16, 128),
        "primary": (16, 16, 32, 36),
        "conv_caps1": (7, 7, 32, 36),
        "conv_caps2": (5, 5, 32, 36),
        "caps1": (20, 36),
        "classes": (100, 36),
    }
    assert shapes("tsai2020_diverse_vector") == {
        "backbone": (18, 18, 1024),
        "primary": (8, 8, 16, 64),
        "conv_caps1": (6, 6, 16, 64),
        "classes": (100, 64),
    }


@pytest.mark.parametrize("overrides", [{}, {"activations": True}])
def test_the_agreement_without_its_scale(overrides):
    """Equation 2 as printed: couplings are further from equal."""

    def coupling(**more):
        model = tiny("tsai2020_cifar10_simple", conv_strides=(2,), **overrides, **more)
        return apply(model, images(), capture=True).routed["conv_caps1"].coupling

    scaled, printed = coupling(), coupling(scale_agreement=False)
    assert np.abs(printed - 1 / 2).mean() > 2 * np.abs(scaled - 1 / 2).mean() > 0


def test_output_of_inverted_attention():
    model = tiny("tsai2020_cifar10_simple", hidden_capsules=(4,))
    output = apply(model, images(), capture=True)
    chex.assert_shape(output.scores, (4, 3))
    chex.assert_shape(output.poses, (4, 3, 16))
    assert output.reconstruction is None
    assert output.score_kind is ScoreKind.LOGITS
    assert set(output.features) == {"backbone", "primary", *output.routed}
    assert set(output.routed) == {"conv_caps1", "conv_caps2", "caps1", "classes"}
    chex.assert_shape(output.routed["conv_caps2"].coupling, (4, 1, 1, 18, 2))
    chex.assert_shape(output.routed["caps1"].coupling, (4, 2, 4))
    alone = apply(model, images()[1:2])
    assert not alone.routed
    np.testing.assert_allclose(alone.scores, output.scores[1:2], rtol=1e-4, atol=1e-5)


def test_em_scores_are_activations():
    model = tiny("tsai2020_em_cifar10_simple", size=14)
    model.eval()
    output = apply(model, images(14), capture=True)
    np.testing.assert_array_equal(output.scores, output.routed["classes"].activations)
    assert output.scores.min() >= 0
    assert output.scores.max() <= 1
    chex.assert_shape(output.routed["conv_caps1"].coupling, (4, 3, 3, 18, 2))
