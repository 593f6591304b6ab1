from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax import losses
from capsjax.data.accuracy import above, top
from capsjax.data.tasks import Example, Objects
from capsjax.models import Output, ScoreKind
from capsjax.training import objective

LABEL = jnp.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
LENGTHS = jnp.array([[0.8, 0.3, 0.2], [0.1, 0.6, 0.5]])
LOGITS = jnp.array([[3.0, -1.0, 40.0], [-2.0, 0.5, 1.0]])
IMAGES = jnp.zeros((2, 4, 4, 1))
BATCH = Example(IMAGES, LABEL, Objects(IMAGES[:, None], LABEL[:, None]))

create = partial(objective.make_objective, rule=top(1))


def mean(loss, scores):
    return jnp.mean(jax.vmap(loss)(scores, LABEL))


@pytest.mark.parametrize(
    ("name", "loss", "of_lengths", "of_logits"),
    [
        ("margin", losses.margin_loss, lambda x: x, jax.nn.sigmoid),
        ("spread", losses.spread_loss, lambda x: x, jax.nn.sigmoid),
        ("cross_entropy", losses.cross_entropy, lambda x: 10 * x - 5, lambda x: x),
        ("sigmoid_cross_entropy", losses.sigmoid_cross_entropy, lambda x: 10 * x - 5, lambda x: x),
    ],
)
def test_losses_see_lengths_or_logits(name, loss, of_lengths, of_logits):
    goal = create(name=name)
    value, metrics = goal(Output(LENGTHS), BATCH)
    np.testing.assert_allclose(value, mean(loss, of_lengths(LENGTHS)), rtol=1e-6)
    np.testing.assert_array_equal(metrics[name], value)
    value, _ = goal(Output(LOGITS, score_kind=ScoreKind.LOGITS), BATCH)
    np.testing.assert_allclose(value, mean(loss, of_logits(LOGITS)), rtol=1e-6)


@pytest.mark.parametrize("name", [*objective.ON_PRESENCES, *objective.ON_LOGITS])
def test_the_mean_over_classes(name):
    """A third of the sum, of the scores' loss alone."""
    output = Output(LENGTHS, reconstruction=jnp.full((2, 1, 4, 4, 1), 0.5))
    added, parts = create(name=name)(output, BATCH)
    averaged, metrics = create(name=name, classes="mean")(output, BATCH)
    np.testing.assert_allclose(metrics[name], parts[name] / 3, rtol=1e-6)
    np.testing.assert_allclose(added - averaged, parts[name] * 2 / 3, rtol=1e-5)


@pytest.mark.parametrize("name", [*objective.ON_PRESENCES, *objective.ON_LOGITS])
@pytest.mark.parametrize("kind", ScoreKind)
def test_every_loss_prefers_the_right_class_whatever_the_scores(name, kind):
    """Also lengths above 1, which there are without squash."""
    goal = create(name=name)

    def loss(right, wrong):
        scores = wrong + (right - wrong) * LABEL
        return goal(Output(scores, score_kind=kind), BATCH)[0]

    assert loss(0.9, 0.1) < loss(0.5, 0.5) < loss(0.1, 0.9) < loss(0.5, 1.5)


def test_accuracy_by_the_rule():
    def accuracy(rule, scores, label, kind=ScoreKind.LENGTHS):
        output = Output(jnp.array(scores), score_kind=kind)
        batch = BATCH._replace(label=jnp.array(label))
        return objective.make_objective(rule=rule)(output, batch)[1]["accuracy"]

    assert accuracy(top(1), LENGTHS, LABEL) == 0.5
    both = [[1.0, 0.0, 1.0]] * 2
    assert accuracy(top(2), [[0.8, 0.1, 0.2], [0.8, 0.3, 0.2]], both) == 0.5
    assert accuracy(above(0.5), LENGTHS, LABEL) == 0.5
    # Of logits 0 is the middle.
    assert accuracy(above(0.5), [[1, -1, 2], [0.6, 0.7, 1]], both, ScoreKind.LOGITS) == 0.5


def test_reconstruction_as_sum_and_as_mean():
    output = Output(LENGTHS, reconstruction=jnp.full((2, 1, 4, 4, 1), 0.5))
    margin = mean(losses.margin_loss, LENGTHS)
    loss, metrics = create(reconstruction_weight=0.1)(output, BATCH)
    assert metrics["reconstruction"] == pytest.approx(16 * 0.25)
    assert loss == pytest.approx(margin + 0.1 * 16 * 0.25)
    loss, metrics = create(reconstruction="mean", reconstruction_weight=0.3)(output, BATCH)
    assert metrics["reconstruction"] == pytest.approx(0.25)
    assert loss == pytest.approx(margin + 0.3 * 0.25)


def test_objects_are_reconstructed_one_by_one():
    """Two in the first image, one in the second; the image itself is their sum."""
    images = jnp.full((2, 2, 4, 4, 1), 0.25)
    labels = jnp.array([[[1, 0, 0], [0, 1, 0]], [[0, 0, 1], [0, 0, 0]]], jnp.float32)
    batch = Example(jnp.full((2, 4, 4, 1), 0.5), labels.sum(1), Objects(images, labels))
    output = Output(LENGTHS, reconstruction=jnp.zeros((2, 2, 4, 4, 1)))
    _, metrics = create()(output, batch)
    assert metrics["reconstruction"] == pytest.approx(16 * (2 * 0.25**2 + 0.25**2) / 2)
    # Without a mask the decoder makes one image: of what the network saw.
    output = Output(LENGTHS, reconstruction=jnp.zeros((2, 4, 4, 1)))
    _, metrics = create()(output, batch)
    assert metrics["reconstruction"] == pytest.approx(16 * 0.5**2)


def test_a_reconstruction_of_another_shape_is_an_error():
    output = Output(LENGTHS, reconstruction=jnp.zeros((2, 1, 5, 4, 1)))
    with pytest.raises(ValueError, match=r"shape \(5, 4, 1\), its image \(4, 4, 1\)"):
        create()(output, BATCH)
