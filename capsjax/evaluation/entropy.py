"""How undecided the children of each routing are (Lin et al. 2018, section 3.1 and figure 3)."""

from typing import Any

import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Num

from capsjax.evaluation.batches import in_batches, outline
from capsjax.routing.diagnostics import coupling_entropy


def routing_entropies(
    model: nnx.Module, images: Num[np.ndarray, "n h w c"], *, batch_size: int = 128
) -> dict[str, Float[np.ndarray, "n"]]:
    """The mean entropy of the coupling's rows, in nats, by routing layer and for each image.

    Log J where every child is spread evenly over J parents, 0 where each has chosen one. The
    paper's H̄ of R1, the first routing, is the mean over the images:

      routing_entropies(model, images)["capsules1"].mean()

    and its figure 3 the trace of that number over training. A layer with positions is averaged over
    them too.

    Args:
      model: a network that routes.
      images: of the network's size, floats in [0, 1], or uint8.
      batch_size: images at a time.

    Raises:
      ValueError: the network routes nothing, the images do not fit it, or a coupling does not
        divide each child over its parents (that of attention routing, Choi et al. 2019, divides
        each parent over its children: its rows have no entropy).
    """
    if not outline(model, images).routed:
        raise ValueError(f"this {type(model).__name__} routes nothing: it has no couplings")
    found = in_batches(_entropies, model, (images,), batch_size=batch_size)
    for name, (_, least, most) in found.items():
        sums = np.concatenate([least, most])
        worst = sums[np.abs(sums - 1).argmax()]
        if abs(worst - 1) > 1e-3:
            raise ValueError(
                f"{name}: the coupling of a child adds up to {worst:.2f} over its parents and not "
                "to 1: it is not divided over them, and has no entropy"
            )
    return {name: entropies for name, (entropies, *_) in found.items()}


def _entropies(model: Any, images: Array) -> dict[str, tuple[Float[Array, "n"], ...]]:
    """By layer, for each image: the rows' mean entropy, and their least and greatest sum."""

    def of_rows(coupling: Array) -> tuple[Float[Array, "n"], ...]:
        rows = coupling_entropy(coupling).reshape(len(images), -1)
        sums = coupling.sum(axis=-1).reshape(len(images), -1)
        return rows.mean(axis=1), sums.min(axis=1), sums.max(axis=1)

    routed = model(images, capture=True).routed
    return {name: of_rows(result.coupling) for name, result in routed.items()}
