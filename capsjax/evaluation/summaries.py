"""Summaries of the class scores of a whole split."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Array, Bool, Float, Int

from capsjax.data.accuracy import Rule
from capsjax.evaluation.batches import check_labels


class Summary(NamedTuple):
    """Top-1 results."""

    accuracy: float  #: fraction of correct answers
    interval: tuple[float, float]  #: its 95 % confidence interval (Wilson's)
    per_class: Float[np.ndarray, "classes"]  #: accuracy by true class; NaN without examples
    confusion: Int[np.ndarray, "classes classes"]  #: counts, true class by predicted class


class MultiLabelSummary(NamedTuple):
    """Results where an image may show several classes; right if exactly those are predicted."""

    accuracy: float
    interval: tuple[float, float]
    present: Int[np.ndarray, "classes"]  #: images that show the class
    found: Int[np.ndarray, "classes"]  #: images that show it and for which it is predicted
    mistaken: Int[np.ndarray, "classes"]  #: images that do not, but for which it is predicted


def summarize(
    scores: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, "n"], *, versions: int = 1
) -> Summary:
    """Compares the class with the highest score with the label.

    `versions` is how many consecutive examples are made from one source image; the interval allows
    for their correlation. Raises ValueError for scores that are not finite.
    """
    if scores.ndim != 2 or not len(scores):
        raise ValueError(
            f"scores must be of all classes, [n, classes], and n at least 1; got {scores.shape}. "
            "For predicted classes pass np.eye(classes)[predicted]"
        )
    num_classes, predicted = scores.shape[-1], scores.argmax(-1)
    _check_finite(scores)
    check_labels(labels, scores, num_classes)
    confusion = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    with np.errstate(invalid="ignore"):
        per_class = np.diag(confusion) / confusion.sum(-1)
    return Summary(*_accuracy(predicted == labels, versions), per_class, confusion)


def summarize_multi_label(
    rule: Rule,
    scores: Float[np.ndarray, "n classes"],
    labels: Float[np.ndarray, "n classes"],
    *,
    logits: bool,
    versions: int = 1,
) -> MultiLabelSummary:
    """Compares the classes that `rule` predicts with those present; see `summarize`."""
    _check_finite(scores)
    predicted, present = np.asarray(_predicted(rule, logits, scores)), labels > 0
    return MultiLabelSummary(
        *_accuracy((predicted == present).all(-1), versions),
        present.sum(0),
        (predicted & present).sum(0),
        (predicted & ~present).sum(0),
    )


def _check_finite(scores: Float[np.ndarray, "n classes"]) -> None:
    wrong = np.flatnonzero(~np.isfinite(scores).all(-1))
    if wrong.size:
        raise ValueError(
            f"scores must be finite, got {scores[wrong[0]]} for example {wrong[0]} (and "
            f"{wrong.size - 1} more): the network's parameters or its type do not fit the images"
        )


# Compiled once for each rule, not at every validation.
@partial(jax.jit, static_argnums=(0, 1))
def _predicted(rule: Rule, logits: bool, scores: Array) -> Array:
    return jax.vmap(partial(rule, logits=logits))(scores)


def _accuracy(correct: Bool[np.ndarray, "n"], versions: int) -> tuple[float, tuple[float, float]]:
    """Computes the accuracy, and Wilson's interval for the effective sample size.

    That size is n if the versions of an image are right or wrong independently, and the number of
    images if all versions of an image agree.
    """
    by_image = correct.reshape(-1, versions).mean(axis=1)
    rate, num = float(correct.mean()), len(by_image)
    squared_error = by_image.var() / max(1, num - 1)
    if squared_error > 0:
        num = round(np.clip(rate * (1 - rate) / squared_error, num, len(correct)))
    test = scipy.stats.binomtest(round(rate * num), num)
    interval = test.proportion_ci(confidence_level=0.95, method="wilson")
    return rate, (interval.low, interval.high)
