import numpy as np
import pytest

from capsjax.data.accuracy import above, top
from capsjax.evaluation.scoring import gives_logits
from capsjax.evaluation.summaries import summarize, summarize_multi_label
from tests.models.building import build


def test_summary_by_hand():
    scores = np.eye(3)[[0, 0, 1, 2, 2]]
    summary = summarize(scores, np.array([0, 1, 1, 2, 0]))
    assert summary.accuracy == pytest.approx(0.6)
    np.testing.assert_array_equal(summary.confusion, [[1, 0, 1], [1, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(summary.per_class, [0.5, 0.5, 1.0])
    # Wilson (1927) for 3 of 5
    np.testing.assert_allclose(summary.interval, [0.2307, 0.8824], atol=1e-4)


def interval_of(correct, versions):
    labels = np.zeros(correct.size, int)
    summary = summarize(np.eye(2)[1 - correct.ravel()], labels, versions=versions)
    assert summary.accuracy == pytest.approx(correct.mean())
    return summary.interval


def test_versions_that_always_agree_count_once():
    of_images = np.array([1, 1, 0, 1, 0, 1, 1, 1])
    alone = interval_of(of_images, 1)
    np.testing.assert_allclose(interval_of(np.repeat(of_images, 50), 50), alone)
    # Nothing tells whether versions that are all right would be wrong together.
    assert interval_of(np.ones(8 * 50, int), 50) == interval_of(np.ones(8, int), 1)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """Some images are harder than others, in all of their 32 versions."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        easiness = rng.beta(4 * 0.8, 4 * 0.2, size=(300, 1))
        low, high = interval_of((rng.random((300, 32)) < easiness).astype(int), 32)
        held += low < 0.8 < high
    assert 180 <= held <= 199


def test_classes_without_examples_are_nan():
    summary = summarize(np.eye(3)[[0, 1]], np.array([0, 1]))
    assert np.isnan(summary.per_class[2])


SCORES = np.array([[0.9, 0.7, 0.1], [0.9, 0.2, 0.6], [0.8, 0.4, 0.3]])
PRESENT = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0]], np.float32)


@pytest.mark.parametrize(
    ("rule", "accuracy", "found", "mistaken"),
    [
        (top(1), 1 / 3, [3, 0, 0], [0, 0, 0]),
        (top(2), 1 / 3, [3, 1, 0], [0, 1, 1]),
        (above(0.5), 2 / 3, [3, 1, 0], [0, 0, 1]),
    ],
)
def test_several_classes_by_hand(rule, accuracy, found, mistaken):
    summary = summarize_multi_label(rule, SCORES, PRESENT, logits=False)
    assert summary.accuracy == pytest.approx(accuracy)
    assert summary.interval[0] < accuracy < summary.interval[1]
    assert summary.present.tolist() == [3, 2, 0]
    assert summary.found.tolist() == found
    assert summary.mistaken.tolist() == mistaken
    # Logits of the same probabilities name the same.
    logits = np.log(SCORES / (1 - SCORES))
    assert summarize_multi_label(rule, logits, PRESENT, logits=True).accuracy == summary.accuracy


@pytest.mark.parametrize(
    ("name", "logits"), [("sabour2017_capsnet", False), ("gu2021_convnet_avg", True)]
)
def test_what_scores_are_is_known_without_computing(name, logits):
    model = build(name, (20, 20, 1), 3, width=1 / 32)
    assert gives_logits(model, (20, 20, 1)) is logits


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (np.full((2, 3), np.nan), [0, 1], "scores must be finite, got .* for example 0"),
        (np.array([0.0, 1, 2]), [0, 1, 2], r"got \(3,\). For predicted classes pass np.eye"),
        (np.zeros((0, 3)), [], "n at least 1; got .0, 3."),
        (np.eye(3), [0, 1, -1], "labels must be classes, 0 to 2; got -1 to 1"),
        (np.eye(3), [0.0, 1, 2], "labels must be one integer for each"),
    ],
)
def test_what_has_no_summary(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        summarize(scores, labels)


def test_no_accuracy_of_scores_that_are_not_finite():
    with pytest.raises(ValueError, match="scores must be finite"):
        summarize_multi_label(top(1), np.full((2, 3), np.nan), np.eye(3)[:2], logits=True)
