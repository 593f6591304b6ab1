"""Class scores of a whole split, and what they say."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from flax import nnx
from jaxtyping import Array, Float, Int

from capsjax.data.accuracy import Rule, right
from capsjax.data.tasks import EvaluationSet
from capsjax.models import ScoreKind
from capsjax.training import feed
from capsjax.training.parallel import on_devices
from capsjax.training.step import Batches, evaluate_batch


def scorer(
    graphdef: nnx.GraphDef,
    examples: EvaluationSet,
    *,
    batch_size: int,
    devices: Sequence[jax.Device],
    progress: Callable[[int], None] = lambda done: None,
) -> Callable[[nnx.State, nnx.State], Float[np.ndarray, "n classes"]]:
    """A function from (params, rest) to the scores of all `examples`, in order.

    It is compiled once and holds their source arrays on the devices, or feeds them in batches where
    they are `Stored`. `progress` is told the number of images done.
    """
    num = len(examples)
    # No larger than needed: a small split must not be padded to a large batch.
    rounded_up = -(-num // len(devices)) * len(devices)
    batches = Batches(num, min(batch_size, rounded_up), len(devices))
    count = -(-num // batches.batch_size)
    source = feed.for_evaluation(examples, batches, devices)
    run = on_devices(
        partial(evaluate_batch, graphdef=graphdef, examples=examples, batches=batches),
        devices,
        5,
        divided=(4,),
    )

    def scores(params: nnx.State, rest: nnx.State) -> Float[np.ndarray, "n classes"]:
        parts = []
        with source.running(0, count) as at:
            for number in range(count):
                fed, _ = at(number)
                parts.append(run(params, rest, source.arrays, np.int32(number), fed))
                if number:  # one batch ahead, so that the device never waits for the host
                    parts[-2] = np.asarray(parts[-2])
                    progress(number * batches.batch_size)
        progress(num)
        return np.concatenate([np.asarray(part) for part in parts])[:num]

    return scores


class Summary(NamedTuple):
    """Top-1 results.

    Attributes:
      accuracy: share of right answers.
      interval: its 95 % confidence interval (Wilson's score interval).
      per_class: share of right answers by true class (NaN for a class without examples).
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
    accuracy, interval = _share(int(correct.sum()), num)
    return Summary(accuracy, interval, per_class, confusion)


class MultiLabelSummary(NamedTuple):
    """Results where an image may show several classes.

    Attributes:
      accuracy: share of images whose classes are named, no more and no fewer.
      interval: its 95 % confidence interval (Wilson's score interval).
      present: by class, the images that show it.
      found: those of them for which it is named.
      mistaken: the images that do not show it and for which it is named.
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
    """Compares the classes that `rule` names with those that are present."""
    named = np.asarray(_named(rule, logits, scores))
    present = labels > 0
    return MultiLabelSummary(
        *share_right(rule, scores, labels, logits=logits),
        present.sum(0),
        (named & present).sum(0),
        (named & ~present).sum(0),
    )


class Accuracy(NamedTuple):
    """The share of right answers and its 95 % confidence interval (Wilson's score interval)."""

    accuracy: float
    interval: tuple[float, float]


def share_right(
    rule: Rule,
    scores: Float[np.ndarray, "n classes"],
    labels: Float[np.ndarray, "n classes"],
    *,
    logits: bool,
) -> Accuracy:
    """The share of examples whose classes `rule` names, no more and no fewer."""
    return _share(int(_right(rule, logits, scores, labels).sum()), len(labels))


def gives_logits(graphdef: nnx.GraphDef, params: nnx.State, rest: nnx.State, image_shape) -> bool:
    """Whether the scores of a network are logits, and not lengths; nothing is computed."""
    images = jax.ShapeDtypeStruct((1, *image_shape), np.float32)
    output = jax.eval_shape(lambda p, r, x: nnx.merge(graphdef, p, r)(x), params, rest, images)
    return output.score_kind is ScoreKind.LOGITS


# Compiled once for each rule, not at every validation.
@partial(jax.jit, static_argnums=(0, 1))
def _named(rule: Rule, logits: bool, scores: Array) -> Array:
    return jax.vmap(partial(rule, logits=logits))(scores)


@partial(jax.jit, static_argnums=(0, 1))
def _right(rule: Rule, logits: bool, scores: Array, labels: Array) -> Array:
    return jax.vmap(partial(right, rule, logits=logits))(scores, labels)


def _share(count: int, num: int) -> Accuracy:
    test = scipy.stats.binomtest(count, num)
    interval = test.proportion_ci(confidence_level=0.95, method="wilson")
    return Accuracy(float(test.statistic), (interval.low, interval.high))
