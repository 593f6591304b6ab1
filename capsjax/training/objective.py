"""The loss that training minimises, and the metrics beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from capsjax import losses
from capsjax._options import Options, not_negative, one_of
from capsjax.data.accuracy import Rule, is_correct
from capsjax.data.tasks import Example
from capsjax.models import Output, ScoreKind

Metrics = dict[str, Float[Array, ""]]
Objective = Callable[[Output, Example], tuple[Float[Array, ""], Metrics]]

ON_PRESENCES: dict[str, Callable] = {"margin": losses.margin_loss, "spread": losses.spread_loss}
ON_LOGITS: dict[str, Callable] = {
    "cross_entropy": losses.cross_entropy,
    "sigmoid_cross_entropy": losses.sigmoid_cross_entropy,
}


@dataclass(frozen=True)
class LossOptions(Options):
    """The section `loss`.

    Attributes:
      name: the loss of the class scores. Any goes with any model: a loss of presences gets the
        sigmoid of scores that are logits; a loss of logits gets `length_logits` of lengths.
      classes: the "sum" over the classes of that loss, or their "mean"
        (configs/tsai2020_diverse.py).
      reconstruction: the "sum" (Sabour et al. 2017) or the "mean" (Choi et al. 2019) over the
        pixels of the squared error.
      reconstruction_weight: factor of the reconstruction loss.
    """

    SECTION: ClassVar[str] = "loss"

    name: str = one_of(*ON_PRESENCES, *ON_LOGITS)
    classes: str = one_of("sum", "mean")
    reconstruction: str = one_of("sum", "mean")
    reconstruction_weight: float = not_negative(0.0005)


def make_objective(*, rule: Rule, **options: Any) -> Objective:
    """Returns a loss of the class scores plus `reconstruction_weight` times one of the image.

    The options are those of `LossOptions`. The function returns the mean loss of a batch, and these
    means: `loss`; the loss of the scores, under its name; `reconstruction`, if there is one; and
    `accuracy`, the fraction of examples for which `rule` predicts exactly the classes present.
    """
    own = LossOptions.of(options)
    name = own.name
    loss_of = (ON_PRESENCES | ON_LOGITS)[name]

    def objective(output: Output, batch: Example) -> tuple[Float[Array, ""], Metrics]:
        is_logits, scores = output.score_kind is ScoreKind.LOGITS, output.scores
        if is_logits and name in ON_PRESENCES:
            scores = jax.nn.sigmoid(scores)
        elif not is_logits and name in ON_LOGITS:
            scores = losses.length_logits(scores)
        loss = jnp.mean(jax.vmap(loss_of)(scores, batch.label))
        if own.classes == "mean":
            loss /= scores.shape[-1]
        correct = jax.vmap(partial(is_correct, rule, logits=is_logits))(output.scores, batch.label)
        metrics = {name: loss, "accuracy": jnp.mean(correct.astype(jnp.float32))}
        if output.reconstruction is not None:
            errors = _squared_error(output.reconstruction, batch)
            if own.reconstruction == "mean":
                errors /= batch.image[0].size
            metrics["reconstruction"] = jnp.mean(errors)
            loss += own.reconstruction_weight * metrics["reconstruction"]
        return loss, metrics | {"loss": loss}

    return objective


def _squared_error(
    reconstruction: Float[Array, "n *objects h w c"], batch: Example
) -> Float[Array, "n"]:
    """Returns the squared errors of an image's objects, added up (Sabour et al. 2017, section 6.2).

    A decoder that ignores the mask makes one image, which is compared with the input.
    """
    if reconstruction.ndim == batch.image.ndim:
        return jax.vmap(losses.reconstruction_loss)(reconstruction, batch.image)
    errors = jax.vmap(jax.vmap(losses.reconstruction_loss))(reconstruction, batch.objects.images)
    present = jnp.sum(batch.objects.labels, axis=-1)
    return jnp.sum(present * errors, axis=-1)
