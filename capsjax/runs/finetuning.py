"""Training that begins with what another network learned."""

from collections.abc import Collection, Mapping

import jax
from flax import nnx
from jaxtyping import Array

from capsjax.models import paths
from capsjax.runs import checkpoints


def read(
    path: str, shapes: Mapping[str, jax.ShapeDtypeStruct], layers: Collection[str] = ()
) -> tuple[dict[str, Array], str]:
    """Reads what of another run's variables fits a network, by path, and in words which.

    What does not fit, such as the class layer for another number of classes, stays fresh.

    Args:
      path: a work directory, whose best checkpoint is read; of any network. A variable fits where
        name and shape are the same.
      shapes: the variables of the network to train, by path.
      layers: paths of attributes to take, such as "conv" or "capsules/0"; () for all that fit.

    Raises:
      ValueError: there is no checkpoint, nothing fits, or a layer that was asked for does not fit.
    """
    try:
        checkpoint = checkpoints.read(path)
    except FileNotFoundError as error:
        raise ValueError(f"init_from: {error}") from error
    source = f"{path}, step {checkpoint.step}"
    theirs = paths.by_path(nnx.state(checkpoint.model))
    wanted = {path for path in shapes if not layers or paths.is_in(path, layers)}
    taken, fresh = {}, []
    for path, variable in shapes.items():
        there = theirs.get(path)
        if path not in wanted:
            fresh.append(f"{path} (not in init_layers)")
        elif there is None:
            fresh.append(f"{path} (not there)")
        elif there.shape != variable.shape:
            fresh.append(f"{path} ({_size(there)} there, {_size(variable)} here)")
        else:
            taken[path] = there
    if layers and len(taken) < len(wanted):
        raise ValueError(
            f"init_layers are to come from {source}, but not all of it fits: "
            f"{', '.join(line for line in fresh if not line.endswith('(not in init_layers)'))}"
        )
    if not taken:
        raise ValueError(
            f"nothing of {source} fits this network: no variable has the same name and "
            f"shape. {_some(fresh)}"
        )
    return taken, (
        f"From {source}: {len(taken)} of {len(shapes)} variables, {_some(list(taken))}. "
        f"Fresh: {_some(fresh)}."
    )


def _size(array: jax.ShapeDtypeStruct | Array) -> str:
    return "×".join(map(str, array.shape)) or "one number"


def _some(names: list[str], show: int = 40) -> str:
    return ", ".join(names[:show]) + ", …" * (len(names) > show) if names else "nothing"
