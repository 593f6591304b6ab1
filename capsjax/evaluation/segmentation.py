"""How well the masks of slots separate the objects of an image."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from capsjax._extras import extra
from capsjax.data.tasks import EvaluationSet, Example
from capsjax.evaluation.batches import in_batches, outline
from capsjax.evaluation.scoring import on_examples


class Segmented(NamedTuple):
    """Images taken apart by a network that captures "masks" and "parts"."""

    image: Float[Array | np.ndarray, "n h w c"]
    reconstruction: Float[Array | np.ndarray, "n h w c"]
    parts: Float[Array | np.ndarray, "n slots h w c"]  #: what each slot draws
    masks: Float[Array | np.ndarray, "n slots h w"]  #: each slot's share of each pixel
    objects: Int[Array | np.ndarray, "n h w"]  #: each pixel's object, from 1; 0 for none


def has_masks(model: nnx.Module, image_shape: tuple[int, ...]) -> bool:
    """Tells whether a network captures "masks"; computes nothing."""
    return "masks" in outline(model, image_shape).features


def segment(model: nnx.Module, examples: EvaluationSet, *, batch_size: int = 64) -> Segmented:
    """Returns what `model` makes of all `examples`."""
    function, arrays = on_examples(_segmented, examples)
    return in_batches(function, model, arrays, batch_size=batch_size)


def _segmented(model: Any, batch: Example) -> Segmented:
    output = model(batch.image, capture=True)
    ink = jnp.max(batch.objects.images, axis=-1)  # [n, k, h, w]
    objects = jnp.where(jnp.max(ink, axis=1) > 0, 1 + jnp.argmax(ink, axis=1), 0)
    parts, masks = output.features["parts"], output.features["masks"]
    return Segmented(batch.image, output.reconstruction, parts, masks, objects)


def foreground_ari(
    masks: Float[Array | np.ndarray, "n slots h w"], objects: Int[Array | np.ndarray, "n h w"]
) -> Float[np.ndarray, "n"]:
    """Returns the adjusted Rand index of each image: 1 if slots and objects divide it alike.

    Pixels of the background do not count; an image without objects has 1. A pixel belongs to the
    slot with the largest share.
    """
    with extra("data"):
        from sklearn.metrics import adjusted_rand_score

    pairs = zip(objects, masks.argmax(axis=1), strict=True)
    return np.array([adjusted_rand_score(true[true > 0], slot[true > 0]) for true, slot in pairs])
