import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.data.accuracy import above, is_correct, top

SCORES = jnp.array([0.2, 0.9, 0.6, 0.7])


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (top(1), [0, 1, 0, 0]),
        (top(2), [0, 1, 0, 1]),
        (above(0.5), [0, 1, 1, 1]),
        (above(0.95), [0, 0, 0, 0]),
    ],
)
def test_named_classes(rule, named):
    np.testing.assert_array_equal(rule(SCORES, logits=False), np.array(named, bool))


def test_of_equal_scores_the_first_is_named():
    np.testing.assert_array_equal(top(1)(jnp.zeros(3), logits=False), [True, False, False])


@pytest.mark.parametrize(
    ("rule", "label", "expected"),
    [
        (top(1), [0, 1, 0, 0], True),
        (top(1), [1, 0, 0, 0], False),
        (top(2), [0, 1, 0, 1], True),
        (top(2), [0, 1, 1, 0], False),
        (above(0.65), [0, 1, 0, 1], True),
        (above(0.65), [0, 1, 0, 0], False),  # one too many
        (above(0.65), [0, 1, 1, 1], False),  # one too few
    ],
)
def test_right_names_no_more_and_no_fewer(rule, label, expected):
    assert bool(is_correct(rule, SCORES, jnp.array(label, jnp.float32))) is expected


def test_nan_scores_are_wrong():
    assert not is_correct(above(0.5), jnp.full(3, jnp.nan), jnp.ones(3))


def test_logits_are_compared_with_the_thresholds_logit():
    logits = jnp.array([-1.0, 0.5, 1.5])
    np.testing.assert_array_equal(above(0.5)(logits, logits=True), [False, True, True])
    np.testing.assert_array_equal(above(0.75)(logits, logits=True), [False, False, True])
