"""When an answer is correct: rules from scores to the set of predicted classes."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scores = Float[Array, "classes"]
Classes = Bool[Array, "classes"]  # those that are predicted
# Called as `rule(scores, logits=…)`: from scores, which are lengths or probabilities in [0, 1] or
# logits, to the predicted classes.
Rule = Callable[..., Classes]


def top(count: int) -> Rule:
    """Returns the rule that predicts the `count` classes of highest score (the first of ties)."""

    def rule(scores: Scores, *, logits: bool) -> Classes:
        _, predicted = jax.lax.top_k(scores, count)
        return jnp.zeros(scores.shape, bool).at[predicted].set(True)

    return rule


def above(threshold: float) -> Rule:
    """Returns the rule that predicts scores, or sigmoids of logits, above `threshold` in (0, 1)."""

    def rule(scores: Scores, *, logits: bool) -> Classes:
        return scores > (math.log(threshold / (1 - threshold)) if logits else threshold)

    return rule


def is_correct(
    rule: Rule, scores: Scores, label: Scores, *, logits: bool = False
) -> Bool[Array, ""]:
    """Tells whether exactly the classes in `label` (1 where present) are predicted."""
    return jnp.all(rule(scores, logits=logits) == (label > 0))
