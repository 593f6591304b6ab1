"""Summaries of the class scores of a whole split."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Array, Float, Int

from capsjax.data.accuracy import Rule, is_correct


class Summary(NamedTuple):
    """Top-1 results.

    Attributes:
      accuracy: fraction of correct answers.
      interval: its 95 % confidence interval (Wilson's score interval).
      per_class: fraction of correct answers by true class (NaN for a class without examples).
      confusion: counts, true class by predicted class.
    """

    accuracy: float
    interval: tuple[float, float]
    per_class: Float[np.ndarray, "classes"]
    confusion: Int[np.ndarray, "classes classes"]


def summarize(scores: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, "n"]) -> Summary:
    """Compares the class with the highest score with the label."""
    num, num_classes = scores.shape
    confusion = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(confusion, (labels, scores.argmax(-1)), 1)
    correct = np.diag(confusion)
    with np.errstate(invalid="ignore"):
        per_class = correct / confusion.sum(-1)
    return Summary(*_accuracy(int(correct.sum()), num), per_class, confusion)


class MultiLabelSummary(NamedTuple):
    """Results where an image may show several classes.

    Attributes:
      accuracy: fraction of images for which exactly the classes present are predicted.
      interval: its 95 % confidence interval (Wilson's score interval).
      present: by class, the number of images that show it.
      found: by class, the number of images that show it and for which it is predicted.
      mistaken: by class, the number of images that do not show it but for which it is predicted.
    """

    accuracy: float
    interval: tuple[float, float]
    present: Int[np.ndarray, "classes"]
    found: Int[np.ndarray, "classes"]
    mistaken: Int[np.ndarray, "classes"]


def summarize_multi_label(
    rule: Rule,
    scores: Float[np.ndarray, "n classes"],
    labels: Float[np.ndarray, "n classes"],
    *,
    logits: bool,
) -> MultiLabelSummary:
    """Compares the classes that `rule` predicts with those that are present."""
    predicted = np.asarray(_predicted(rule, logits, scores))
    present = labels > 0
    return MultiLabelSummary(
        *accuracy(rule, scores, labels, logits=logits),
        present.sum(0),
        (predicted & present).sum(0),
        (predicted & ~present).sum(0),
    )


class Accuracy(NamedTuple):
    """The fraction of correct answers and its 95 % confidence interval (Wilson's)."""

    accuracy: float
    interval: tuple[float, float]


def accuracy(
    rule: Rule,
    scores: Float[np.ndarray, "n classes"],
    labels: Float[np.ndarray, "n classes"],
    *,
    logits: bool,
) -> Accuracy:
    """The fraction of examples for which `rule` predicts exactly the classes present."""
    return _accuracy(int(_is_correct(rule, logits, scores, labels).sum()), len(labels))


# Compiled once for each rule, not at every validation.
@partial(jax.jit, static_argnums=(0, 1))
def _predicted(rule: Rule, logits: bool, scores: Array) -> Array:
    return jax.vmap(partial(rule, logits=logits))(scores)


@partial(jax.jit, static_argnums=(0, 1))
def _is_correct(rule: Rule, logits: bool, scores: Array, labels: Array) -> Array:
    return jax.vmap(partial(is_correct, rule, logits=logits))(scores, labels)


def _accuracy(count: int, num: int) -> Accuracy:
    test = scipy.stats.binomtest(count, num)
    interval = test.proportion_ci(confidence_level=0.95, method="wilson")
    return Accuracy(float(test.statistic), (interval.low, interval.high))
