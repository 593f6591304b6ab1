"""Training that starts from the parameters of another network."""

from collections.abc import Collection, Mapping
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array

from capsjax.models import paths
from capsjax.runs import checkpoints


def read(
    path: str, shapes: Mapping[str, jax.ShapeDtypeStruct], layers: Collection[str] = ()
) -> tuple[dict[str, Array], str]:
    """Reads the variables in the best checkpoint of `path` that fit a network; says which they are.

    A variable fits if its name and shape are in `shapes`; the others, such as the class layer for
    another number of classes, keep fresh values. `layers` are the paths of attributes to take, such
    as "conv" or "capsules/0"; () for all that fit. Raises ValueError if one of these does not fit.
    """
    checkpoint = checkpoints.read(path)
    source = f"{path}, step {checkpoint.step}"
    theirs = paths.by_path(nnx.state(checkpoint.model))
    taken, fresh, lacking = {}, [], []
    for name, variable in shapes.items():
        there = theirs.get(name)
        if layers and not paths.is_in(name, layers):
            fresh.append(f"{name} (not in init_layers)")
        elif there is None or there.shape != variable.shape:
            lacking.append(f"{name} ({_size(there)} there, {_size(variable)} here)")
        else:
            taken[name] = there
    if not taken or (layers and lacking):
        raise ValueError(f"init_from: {source} does not fit this network: {_some(lacking)}")
    words = f"From {source}: {len(taken)} of {len(shapes)} variables, {_some(list(taken))}."
    return taken, f"{words} Fresh: {_some(fresh + lacking)}."


def _size(array: Any) -> str:
    return "none" if array is None else "×".join(map(str, array.shape)) or "one number"


def _some(names: list[str], show: int = 40) -> str:
    return ", ".join(names[:show]) + ", …" * (len(names) > show) if names else "nothing"
