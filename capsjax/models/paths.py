"""Parts of a network by the names of their attributes: "conv", "capsules/0"."""

from collections.abc import Collection
from typing import Any

import jax
from flax import nnx
from jaxtyping import PyTree

from capsjax._names import did_you_mean


def by_path(variables: PyTree) -> dict[str, Any]:
    """Returns the arrays of `variables`, or their shapes, by path."""
    return {_joined(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(variables)}


def within(params: nnx.State, layers: Collection[str], option: str = "layers") -> PyTree:
    """Returns a tree of the structure of `params`: True in and below `layers`, False elsewhere."""
    check_known(params, layers, option)
    return jax.tree_util.tree_map_with_path(lambda path, _: is_in(_joined(path), layers), params)


def check_known(params: nnx.State, layers: Collection[str], option: str) -> None:
    """Raises ValueError for a layer that holds no parameters; `option` is what it is called."""
    paths = [path.split("/") for path in by_path(params)]
    known = {"/".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}
    for layer in layers:
        if layer not in known:
            raise ValueError(f"{option}: no parameters in {layer!r}: {did_you_mean(layer, known)}")


def is_in(path: str, layers: Collection[str]) -> bool:
    """Tells whether the variable at `path` belongs to one of `layers`."""
    return any(f"{path}/".startswith(f"{layer}/") for layer in layers)


def replaced(variables: nnx.State, by: dict[str, Any]) -> nnx.State:
    """Returns `variables` with the arrays in `by` put at their paths."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: by.get(_joined(path), leaf), variables
    )


def _joined(path: tuple) -> str:
    """Returns the attributes that lead to a variable; its path ends with the variable's value."""
    return jax.tree_util.keystr(path[:-1], simple=True, separator="/")
