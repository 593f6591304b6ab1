"""How decided a routing is: the entropy of its couplings, and where they point to."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Num

from capsjax.evaluation.batches import in_batches, outline
from capsjax.routing import coupling_entropy


def routing_entropies(
    model: nnx.Module, images: Num[np.ndarray, "n h w c"], *, batch_size: int = 128
) -> dict[str, Float[np.ndarray, "n"]]:
    """Returns the mean entropy of the coupling's rows, in nats, by routing layer, for each image.

    Log J where every child is spread evenly over J parents, 0 where each has chosen one (Lin et al.
    2018, section 3.1). A layer with positions is averaged over them too. The paper's H̄ of R1, in
    figure 3, is

      routing_entropies(model, images)["capsules1"].mean()

    Raises ValueError if the network routes nothing, or a coupling does not divide each child over
    its parents: attention routing (Choi et al. 2019) divides each parent over its children.
    """
    measured = _measured(model, images, batch_size)
    return {name: entropies for name, (entropies, _) in measured.items()}


def true_class_shares(
    model: nnx.Module,
    images: Num[np.ndarray, "n h w c"],
    targets: Num[np.ndarray, "n classes"],
    *,
    batch_size: int = 128,
) -> Float[np.ndarray, "n"]:
    """Returns the share of a child's vote that a true class gets in the last routing, by image.

    The mean over the children, and over the classes in the image, whose `targets` are 1. It is
    1 / classes if couplings are equal: the network takes the mean of the votes and does not route.
    Raises ValueError like `routing_entropies`.
    """
    *_, (_, shares) = _measured(model, images, batch_size).values()
    return (shares * targets).sum(axis=-1) / targets.sum(axis=-1)


def _measured(model: nnx.Module, images: np.ndarray, batch_size: int) -> dict[str, Any]:
    """Returns, by layer and image, the rows' mean entropy [n], and each parent's share [n, J]."""
    if not outline(model, images).routed:
        raise ValueError(f"this {type(model).__name__} routes nothing: it has no couplings")
    measured = in_batches(_couplings, model, (images,), batch_size=batch_size)
    for name, (_, _, errors) in measured.items():
        if errors.max() > 1e-3:
            raise ValueError(f"{name}: a child's coupling does not add up to 1 over its parents")
    return {name: of_layer[:2] for name, of_layer in measured.items()}


def _couplings(model: Any, images: Array) -> dict[str, tuple[Array, Array, Array]]:
    measured = {}
    for name, routed in model(images, capture=True).routed.items():
        # [n, (positions,) I, J] → [n, rows, J]
        rows = routed.coupling.reshape(len(images), -1, routed.coupling.shape[-1])
        errors = jnp.abs(rows.sum(axis=-1) - 1).max(axis=1)
        entropies = coupling_entropy(rows).mean(axis=1)
        measured[name] = entropies, rows.mean(axis=1), errors
    return measured
