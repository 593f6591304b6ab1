"""Transfer: lower layers kept as they were trained, the rest trained anew (Lin et al. 2018).

A1B keeps one layer trained on domain A and trains the others on B, A2B keeps two; B1B and B2B do
the same with a network trained on B (section 3.3, figures 6 and 7).
"""

from collections.abc import Collection
from typing import NamedTuple

import jax
from flax import nnx
from jaxtyping import PyTree

from capsjax._nearest import nearest
from capsjax.models.parts import by_path, freeze, within

__all__ = ["LAYERS", "SCHEMES", "Scheme", "Transplant", "freeze", "keep_layers", "lower_layers"]

# The paper's three layers. It draws none below them: what is there belongs to the first.
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "lin2018_capsnet_deeper": (("conv", "primary", "capsules/0"), ("capsules/1",), ("classes",)),
    "lin2018_cnn_deeper": (("convs", "dense/0"), ("dense/1",), ("classes",)),
}


class Scheme(NamedTuple):
    """One of the paper's tests.

    Attributes:
      source: domain that the kept layers were trained on, "A" or "B".
      num_kept: of the three layers, from below.
      target: domain that the others are trained and the network is tested on.
    """

    source: str
    num_kept: int
    target: str


SCHEMES = {
    "A1B": Scheme("A", 1, "B"),
    "A2B": Scheme("A", 2, "B"),
    "B1B": Scheme("B", 1, "B"),
    "B2B": Scheme("B", 2, "B"),
}


class Transplant(NamedTuple):
    """Where training goes on from.

    Attributes:
      params: the trained numbers in the kept layers, the fresh ones elsewhere.
      frozen: of the same structure, True in the kept layers; for `freeze`.
    """

    params: nnx.State
    frozen: PyTree


def lower_layers(name: str, num_kept: int) -> tuple[str, ...]:
    """Paths of the lowest `num_kept` of the three layers of the network `name`, for `keep_layers`.

    Raises:
      ValueError: the paper has no such network, or no so many layers.
    """
    if name not in LAYERS:
        raise ValueError(f"no transfer layers of {name!r} are known: {nearest(name, LAYERS)}")
    layers = LAYERS[name]
    if not 0 <= num_kept <= len(layers):
        raise ValueError(f"num_kept must be in [0, {len(layers)}], got {num_kept}")
    return tuple(path for layer in layers[:num_kept] for path in layer)


def keep_layers(trained: nnx.State, fresh: nnx.State, layers: Collection[str]) -> Transplant:
    """The parameters of `trained` in `layers`, those of `fresh` everywhere else.

    Args:
      trained: parameters of a trained network, `nnx.state(model, nnx.Param)`.
      fresh: those of a network of the same structure, with another seed.
      layers: paths of attributes, such as "conv" or "capsules/0"; all below a path belongs to it.

    Raises:
      ValueError: the two are not of one structure and shape, or a path holds no parameters (the
        nearest is named).
    """
    shapes, others = _shapes(trained), _shapes(fresh)
    if shapes != others:
        differ = sorted(k for k in shapes | others if shapes.get(k) != others.get(k))
        raise ValueError(
            "trained and fresh must be parameters of networks of the same structure and sizes; "
            f"they differ in {', '.join(differ)}"
        )
    frozen = within(trained, layers)
    params = jax.tree.map(lambda keep, old, new: old if keep else new, frozen, trained, fresh)
    return Transplant(params, frozen)


def _shapes(params: nnx.State) -> dict[str, tuple[int, ...]]:
    return {path: leaf.shape for path, leaf in by_path(params).items()}
