"""What training asks of a network of one's own, said before anything is trained."""

import jax
import jax.numpy as jnp
from flax import nnx

from capsjax.models import Output


def check(
    name: str, model: nnx.Module, input_shape: tuple[int, int, int], num_classes: int
) -> None:
    """Raises unless `model`, which may be abstract, can be trained to classify such images.

    Raises:
      TypeError: a call does not return an `Output`.
      ValueError: its scores are not [n, classes], or the network keeps random numbers.
    """
    random = nnx.to_flat_state(nnx.state(model, nnx.RngState))
    if random:
        path = ".".join(map(str, random[0][0][:-1]))
        raise ValueError(
            f"the network {name!r} keeps a stream of random numbers, {path}, which a checkpoint "
            "cannot hold and all devices would share: in place of nnx.Dropout use "
            "capsjax.layers.dropout(x, keys, keep=…) with the keys that the network is called with"
        )
    images = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    out = nnx.eval_shape(lambda model, images: model(images), model, images)
    if not isinstance(out, Output):
        raise TypeError(
            f"the network {name!r} must return a capsjax.models.Output, got {type(out).__name__}"
        )
    if jnp.shape(out.scores) != (2, num_classes):
        raise ValueError(
            f"the network {name!r} must return scores [n, {num_classes}], one for each class, got "
            f"{list(jnp.shape(out.scores))} for 2 images"
        )
