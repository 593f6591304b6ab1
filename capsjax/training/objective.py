"""What is minimised, and what is counted beside it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from capsjax.data.tasks import Example
from capsjax.losses import margin_loss, reconstruction_loss
from capsjax.models import Output

Metrics = dict[str, Float[Array, ""]]
Objective = Callable[[Output, Example], tuple[Float[Array, ""], Metrics]]


def create(*, reconstruction_weight: float) -> Objective:
    """Margin loss plus `reconstruction_weight` times the summed squared error of the image.

    The result maps a batch to the mean loss and the means of `loss`, `margin`,
    `reconstruction` (squared error per image) and `accuracy`.
    """
    if not reconstruction_weight >= 0:
        raise ValueError(f"reconstruction_weight must be ≥ 0, got {reconstruction_weight}")

    def objective(output: Output, batch: Example) -> tuple[Float[Array, ""], Metrics]:
        margin = jnp.mean(jax.vmap(margin_loss)(output.scores, batch.label))
        correct = jnp.argmax(output.scores, axis=-1) == jnp.argmax(batch.label, axis=-1)
        metrics = {"margin": margin, "accuracy": jnp.mean(correct.astype(jnp.float32))}
        loss = margin
        if output.reconstruction is not None:
            errors = jax.vmap(reconstruction_loss)(output.reconstruction, batch.image)
            metrics["reconstruction"] = jnp.mean(errors)
            loss += reconstruction_weight * metrics["reconstruction"]
        return loss, metrics | {"loss": loss}

    return objective
