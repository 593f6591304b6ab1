"""How decided routing is: the entropy of its couplings, and the share of the true class."""

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
    """Returns the mean entropy of the couplings, in nats, by routing layer, for each image.

    It is log J if every child is spread evenly over J parents, 0 if each has chosen one (Lin et al.
    2018, section 3.1). The paper's H̄ of R1 is the mean over images of "capsules1". Attention
    routing (Choi et al. 2019) divides each parent over I children: at most log I.

    Raises ValueError if the network routes nothing, or its couplings add up to 1 over neither.
    """
    return _by_layer(_entropies, model, (images,), batch_size)


def true_class_shares(
    model: nnx.Module,
    images: Num[np.ndarray, "n h w c"],
    targets: Num[np.ndarray, "n classes"],
    *,
    batch_size: int = 128,
) -> Float[np.ndarray, "n"]:
    """Returns the share of a child's vote that a true class gets in the last routing, by image.

    The mean over the children, and over the classes in the image, whose `targets` are 1 (NaN if
    there are none). It is 1 / classes if couplings are equal: the network does not route.

    Raises ValueError if the network routes nothing, or that routing does not divide children.
    """
    return next(iter(_by_layer(_true_shares, model, (images, targets), batch_size).values()))


def _by_layer(function: Any, model: nnx.Module, arrays: Any, batch_size: int) -> dict[str, Any]:
    """Returns what `function` measures, over parents or children, where couplings add up to 1."""
    if not outline(model, arrays[0].shape[1:]).routed:
        raise ValueError(f"this {type(model).__name__} routes nothing: it has no couplings")
    found = {}
    for name, ways in in_batches(function, model, arrays, batch_size=batch_size).items():
        found[name] = next((values for values, errors in ways if errors.max() < 1e-3), None)
        if found[name] is None:
            raise ValueError(f"{name}: a child's coupling does not add up to 1 over its parents")
    return found


def _entropies(model: Any, images: Array) -> dict[str, Any]:
    def over_last(coupling: Array) -> tuple[Array, Array]:
        entropies = coupling_entropy(coupling).reshape(len(images), -1)
        return entropies.mean(axis=1), _error(coupling)

    couplings = {k: v.coupling for k, v in model(images, capture=True).routed.items()}
    return {k: [over_last(c), over_last(c.swapaxes(-1, -2))] for k, c in couplings.items()}


def _true_shares(model: Any, images: Array, targets: Array) -> dict[str, Any]:
    *_, (name, last) = model(images, capture=True).routed.items()
    share = last.coupling.reshape(len(images), -1, last.coupling.shape[-1]).mean(axis=1)  # [n, J]
    if targets.shape != share.shape:
        raise ValueError(
            f"targets must have a row of {share.shape[-1]} numbers for each image, such as "
            f"np.eye({share.shape[-1]})[labels]; got shape {targets.shape[1:]} for each"
        )
    return {name: [((share * targets).sum(axis=-1) / targets.sum(axis=-1), _error(last.coupling))]}


def _error(coupling: Array) -> Float[Array, "n"]:
    return jnp.abs(coupling.sum(axis=-1) - 1).reshape(len(coupling), -1).max(axis=1)
