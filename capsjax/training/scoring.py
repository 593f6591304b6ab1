"""A restored network on a data set."""

from collections.abc import Callable, Sequence

import jax
import ml_collections
import numpy as np
from jaxtyping import Float

from capsjax.data import Dataset
from capsjax.data.tasks import as_it_is
from capsjax.training import evaluation
from capsjax.training.checkpoints import Checkpoint
from capsjax.training.parallel import check_batch_size, replicate
from capsjax.training.state import split


def score(
    checkpoint: Checkpoint,
    dataset: Dataset,
    *,
    batch_size: int,
    devices: Sequence[jax.Device],
    progress: Callable[[int], None] = lambda done: None,
) -> Float[np.ndarray, "n classes"]:
    """The class scores of every image, in order; each batch is divided over `devices`.

    Raises:
      ValueError: the data set does not fit the network, or the batch size the devices.
    """
    check_fits(checkpoint.config, dataset)
    check_batch_size(batch_size, len(devices))
    graphdef, params, rest = split(checkpoint.model)
    scores = evaluation.scorer(
        graphdef, as_it_is(dataset), batch_size=batch_size, devices=devices, progress=progress
    )
    return scores(replicate(params, devices), replicate(rest, devices))


def check_fits(config: ml_collections.ConfigDict, dataset: Dataset) -> None:
    """Raises ValueError unless the network of `config` takes these images and tells these classes.

    Classes are compared by name: scores on other classes, even if as many, would mean nothing.
    """
    takes, has = tuple(config.task.input_shape), dataset.images.shape[1:]
    if takes != has:
        raise ValueError(
            f"{dataset.name} has images of {_size(has)}, this network takes {_size(takes)} (height "
            f"× width × channels): choose a data set of that size, such as the {config.data.name} "
            f"it was trained on, or train a network on {dataset.name}"
        )
    tells, asked = tuple(config.task.class_names), dataset.class_names
    if tells != asked:
        raise ValueError(
            f"{dataset.name} has the classes {_listed(asked)}, this network tells {_listed(tells)}:"
            f" choose a data set with the classes of {config.data.name}, which it was trained on, "
            f"or train a network on {dataset.name}"
        )


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _listed(names: tuple[str, ...], show: int = 5) -> str:
    first = ", ".join(names[:show])
    return f"{first}, … ({len(names)})" if len(names) > show else f"{first} ({len(names)})"
