"""What a person looks at while a network trains: a few images beside their reconstructions, and
how undecided each routing is about them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, UInt8

from capsjax.data.tasks import Task
from capsjax.models import Output
from capsjax.routing import coupling_entropy
from capsjax.training.state import TrainState

NUM_IMAGES = 8


class Snapshot(NamedTuple):
    """For TensorBoard, by tag: none of it is part of a run's history.

    Attributes:
      scalars: the mean entropy of each routing layer's coupling, in nats: of each child's over its
        parents, or, where each parent is divided over its children (attention routing), of those.
      pictures: inputs in the first row, below each the reconstructions of its objects; none of a
        network without a decoder.
    """

    scalars: dict[str, float]
    pictures: dict[str, UInt8[np.ndarray, "height width channels"]]


def taker(graphdef: nnx.GraphDef, task: Task) -> Callable[[TrainState], Snapshot]:
    """Returns a function from a state to its snapshot, always of the same images.

    They are the first that are held out for validation, or else to train on. It runs on one device
    of this process alone. `graphdef` is that of the network in evaluation mode.
    """
    examples = task.validation if len(task.validation) else task.evaluation_set("train")
    batch = examples.examples(np.arange(min(NUM_IMAGES, len(examples))))

    @jax.jit
    def look(params, rest, batch):
        # Decoders are shown the classes that are there, as in training.
        model = nnx.merge(graphdef, params, rest)
        output = model(batch.image, mask=batch.objects.labels, capture=True)
        return output.reconstruction, _entropies(output)

    def take(state: TrainState) -> Snapshot:
        variables = jax.tree.map(lambda x: x.addressable_data(0), (state.params, state.rest))
        reconstruction, entropies = jax.device_get(look(*variables, batch))
        pictures = {}
        if reconstruction is not None:
            pictures["inputs_and_reconstructions"] = _picture(batch.image, reconstruction)
        scalars = {f"coupling_entropy/{name}": float(x) for name, x in entropies.items()}
        return Snapshot(scalars, pictures)

    return take


def _entropies(output: Output) -> dict[str, Float[Array, ""]]:
    """Returns the mean entropy of the couplings, by routing layer."""

    def mean_entropy(coupling: Array) -> Float[Array, ""]:
        children, parents = (jnp.abs(coupling.sum(axis) - 1).max() < 1e-3 for axis in (-1, -2))
        of_parents = coupling_entropy(jnp.swapaxes(coupling, -1, -2)).mean()
        # Leaky routing divides neither in full: a part of each child is dropped.
        return jnp.where(parents & ~children, of_parents, coupling_entropy(coupling).mean())

    return {name: mean_entropy(routed.coupling) for name, routed in output.routed.items()}


def _picture(
    images: Float[Array, "n h w c"], reconstructions: Float[np.ndarray, "n *objects h w c"]
) -> UInt8[np.ndarray, "height width channels"]:
    n, height, width, channels = images.shape
    # A decoder without a mask draws one image of all objects.
    objects = reconstructions.reshape(n, -1, height, width, channels)
    grid = np.concatenate([np.asarray(images)[:, None], objects], axis=1)  # [n, rows, h, w, c]
    if channels not in (1, 3):  # no colours that a screen has
        grid = grid.mean(axis=-1, keepdims=True)
    picture = grid.transpose(1, 2, 0, 3, 4).reshape(-1, n * width, grid.shape[-1])
    return np.round(255 * picture.clip(0, 1)).astype(np.uint8)
