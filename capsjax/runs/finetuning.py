"""Training that begins with what another network learned."""

from collections.abc import Collection
from typing import NamedTuple

from flax import nnx
from jaxtyping import Array

from capsjax.models import paths
from capsjax.runs import checkpoints
from capsjax.training.state import split


class Pretrained(NamedTuple):
    """What a checkpoint offers.

    Attributes:
      source: where it is, in words.
      variables: parameters and running statistics by path.
    """

    source: str
    variables: dict[str, Array]


def read(path: str) -> Pretrained:
    """The best checkpoint of the work directory `path`.

    Raises:
      ValueError: there is none.
    """
    try:
        checkpoint = checkpoints.read(path)
    except FileNotFoundError as error:
        raise ValueError(f"init_from: {error}") from error
    _, params, rest = split(checkpoint.model)
    source = f"{path}, step {checkpoint.step}"
    return Pretrained(source, paths.by_path(params) | paths.by_path(rest))


def fitting(
    pretrained: Pretrained, model: nnx.Module, layers: Collection[str] = ()
) -> tuple[dict[str, Array], str]:
    """Selects the variables of `pretrained` that fit `model`, and says in words which they are.

    What does not fit, such as the class layer for another number of classes, stays fresh.

    Args:
      pretrained: of any network; a variable fits where name and shape are the same.
      model: the network to train, which may be abstract.
      layers: paths of attributes to take, such as "conv" or "capsules/0"; () for all that fit.

    Raises:
      ValueError: nothing fits, a layer is unknown, or one that was asked for does not fit.
    """
    _, params, rest = split(model)
    paths.check_known(params, layers)
    ours = paths.by_path(params) | paths.by_path(rest)
    wanted = {path for path in ours if not layers or paths.is_in(path, layers)}
    taken, fresh = {}, []
    for path, variable in ours.items():
        there = pretrained.variables.get(path)
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
            f"init_layers are to come from {pretrained.source}, but not all of it fits: "
            f"{', '.join(line for line in fresh if not line.endswith('(not in init_layers)'))}"
        )
    if not taken:
        raise ValueError(
            f"nothing of {pretrained.source} fits this network: no variable has the same name and "
            f"shape. {_some(fresh)}"
        )
    return taken, (
        f"From {pretrained.source}: {len(taken)} of {len(ours)} variables, {_some(list(taken))}. "
        f"Fresh: {_some(fresh)}."
    )


def _size(array: Array) -> str:
    return "×".join(map(str, array.shape)) or "one number"


def _some(names: list[str], show: int = 40) -> str:
    return ", ".join(names[:show]) + ", …" * (len(names) > show) if names else "nothing"
