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
    """Returns the mean entropy of the coupling's rows, in nats, by routing layer, for each image.

    It is log J if every child is spread evenly over J parents, 0 if each has chosen one (Lin et al.
    2018, section 3.1). The paper's H̄ of R1 is the mean over images of "capsules1".

    Raises ValueError if the network routes nothing, or a coupling does not divide each child over
    its parents: attention routing (Choi et al. 2019) divides each parent over its children.
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

    The mean over the children, and over the classes in the image, whose `targets` are 1. It is
    1 / classes if couplings are equal: the network takes the mean of the votes and does not route.
    Raises ValueError like `routing_entropies`, for that routing.
    """
    return next(iter(_by_layer(_true_shares, model, (images, targets), batch_size).values()))


def _by_layer(function: Any, model: nnx.Module, arrays: Any, batch_size: int) -> dict[str, Any]:
    """Returns what `function` measures, by layer; raises ValueError unless rows add up to 1."""
    if not outline(model, arrays[0].shape[1:]).routed:
        raise ValueError(f"this {type(model).__name__} routes nothing: it has no couplings")
    measured = in_batches(function, model, arrays, batch_size=batch_size)
    for name, (_, errors) in measured.items():
        if errors.max() > 1e-3:
            raise ValueError(
                f"{name}: a child's coupling does not add up to 1 over its parents, as in "
                "attention routing, which this does not measure"
            )
    return {name: values for name, (values, _) in measured.items()}


def _entropies(model: Any, images: Array) -> dict[str, tuple[Array, Array]]:
    measured = {}
    for name, routed in model(images, capture=True).routed.items():
        entropies = coupling_entropy(routed.coupling).reshape(len(images), -1)
        measured[name] = entropies.mean(axis=1), _error(routed.coupling)
    return measured


def _true_shares(model: Any, images: Array, targets: Array) -> dict[str, tuple[Array, Array]]:
    *_, (name, last) = model(images, capture=True).routed.items()
    share = last.coupling.reshape(len(images), -1, last.coupling.shape[-1]).mean(axis=1)  # [n, J]
    if targets.shape != share.shape:
        classes = share.shape[-1]
        raise ValueError(
            f"targets must have a row of {classes} numbers for each image, such as "
            f"np.eye({classes})[labels]; got shape {targets.shape[1:]} for each"
        )
    return {name: ((share * targets).sum(axis=-1) / targets.sum(axis=-1), _error(last.coupling))}


def _error(coupling: Array) -> Float[Array, "n"]:
    return jnp.abs(coupling.sum(axis=-1) - 1).reshape(len(coupling), -1).max(axis=1)
