import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.losses import (
    cross_entropy,
    margin_loss,
    reconstruction_loss,
    sigmoid_cross_entropy,
    spread_loss,
)

TWO_OF_FOUR = jnp.array([1.0, 0.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("lengths", "label", "expected"),
    [
        # present: (0.9 − 0.7)² = 0.04; absent: 0.5·(0.3 − 0.1)² = 0.02, and 0.05 is below 0.1
        ([0.7, 0.3, 0.05], [1.0, 0.0, 0.0], 0.06),
        ([0.95, 0.1], [1.0, 0.0], 0),
        ([0.5, 0.5, 0.0], [1.0, 1.0, 0.0], 2 * 0.16),
    ],
)
def test_margin_loss_by_hand(lengths, label, expected):
    loss = margin_loss(jnp.array(lengths), jnp.array(label))
    assert loss == pytest.approx(expected, rel=1e-6)


def test_spread_loss_compares_every_present_with_every_absent_class():
    presences = jnp.array([0.8, 0.4, 0.5, 0.2])
    pairs = [(0, 1), (0, 3), (2, 1), (2, 3)]
    for margin, options in ((0.9, {}), (0.5, {"margin": 0.5})):
        expected = sum(max(0, margin - float(presences[t] - presences[k])) ** 2 for t, k in pairs)
        assert spread_loss(presences, TWO_OF_FOUR, **options) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [cross_entropy, sigmoid_cross_entropy])
@pytest.mark.parametrize("logit", [-1e4, 1e4])
def test_cross_entropies_of_extreme_logits_are_finite(loss, logit):
    value, gradient = jax.value_and_grad(loss)(jnp.array([logit, 0.0]), jnp.array([1.0, 0.0]))
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize("loss", [cross_entropy, sigmoid_cross_entropy, margin_loss, spread_loss])
def test_losses_compute_in_float32(loss):
    presences = jnp.array([0.3, 0.6, 0.1, 0.9], jnp.bfloat16)
    value = loss(presences, TWO_OF_FOUR)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, loss(presences.astype(jnp.float32), TWO_OF_FOUR), rtol=1e-6)


def test_losses_of_narrow_types_are_summed_in_float32():
    image = jnp.full((28, 28, 1), 1 / 3, jnp.bfloat16)
    loss = reconstruction_loss(jnp.zeros_like(image), image)
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, 784 * np.float32(image[0, 0, 0]) ** 2, rtol=1e-4)


@pytest.mark.parametrize("loss", [margin_loss, spread_loss, cross_entropy, sigmoid_cross_entropy])
@pytest.mark.parametrize(
    ("scores", "label"),
    [
        (jnp.ones(10), jnp.array(3)),
        (jnp.ones((4, 10)), jnp.ones((4, 10))),
        (jnp.ones(10), jnp.ones(9)),
    ],
    ids=["class number", "batch", "other classes"],
)
def test_what_is_not_one_example_is_an_error(loss, scores, label):
    with pytest.raises(ValueError, match=r"one_hot.*vmap"):
        loss(scores, label)


def test_an_image_of_whole_numbers_is_an_error():
    image = jnp.zeros((28, 28, 1))
    with pytest.raises(TypeError, match="uint8: divide it by 255"):
        reconstruction_loss(image, image.astype(jnp.uint8))


def test_cross_entropies_by_hand():
    logits = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))
    assert cross_entropy(logits, TWO_OF_FOUR) == pytest.approx(-np.log(0.1 * 0.3), rel=1e-5)
    # The odds are p, so the probabilities p / (1 + p).
    expected = -np.log(0.1 / 1.1 * 1 / 1.2 * 0.3 / 1.3 * 1 / 1.4)
    assert sigmoid_cross_entropy(logits, TWO_OF_FOUR) == pytest.approx(expected, rel=1e-5)


def test_impossible_classes_that_are_absent_cost_nothing():
    logits, label = jnp.array([-jnp.inf, 0.0]), jnp.array([0.0, 1.0])
    for loss, gradient in ((cross_entropy, [0, 0]), (sigmoid_cross_entropy, [0, -0.5])):
        assert jnp.isfinite(loss(logits, label))
        np.testing.assert_allclose(jax.grad(loss)(logits, label), gradient)
