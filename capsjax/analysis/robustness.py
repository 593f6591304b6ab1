"""Accuracy against one transformation of the images at a time, made on the device."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num

from capsjax.analysis.transformations import Motion, motions, move
from capsjax.evaluation.batches import check_labels, in_batches, outline

# Three times affNIST's ranges of rotation and shear, twice that of scale and gu2021's 8 pixels.
AMOUNTS: dict[str, Float[np.ndarray, "13"]] = {
    "rotation": np.linspace(-60, 60, 13),
    "x": np.linspace(-8, 8, 9),
    "y": np.linspace(-8, 8, 9),
    "scale": np.linspace(0.6, 1.4, 9),
    "shear_x": np.linspace(-0.6, 0.6, 13),
    "shear_y": np.linspace(-0.6, 0.6, 13),
}


def accuracy_curve(
    model: nnx.Module,
    images: Num[np.ndarray, "n h w c"],
    labels: Int[np.ndarray, "n"],
    factor: str,
    amounts: Sequence[float] | Float[np.ndarray, "k"],
    *,
    batch_size: int = 128,
) -> Float[np.ndarray, "k"]:
    """The share of images whose true class has the highest score, moved by each of `amounts`.

    The canvas stays that of the images, so what leaves it is lost: put small images on a larger
    canvas (`capsjax.data.transforms.pad`) and train the network on that size where it should not.

    Args:
      model: a network; the class with the highest score is its answer.
      images: of the network's size, floats in [0, 1], or uint8.
      labels: true classes.
      factor: see `transformations.motions`.
      amounts: see `transformations.motions`.
      batch_size: images at a time; the amounts are gone through one by one.

    Raises:
      ValueError: the arrays do not fit the network or one another, an unknown factor or amounts
        that are no motions.
    """
    every = motions(factor, amounts)
    check_labels(labels, images, outline(model, images).scores.shape[1])
    right = in_batches(_right, model, (images, labels), every, batch_size=batch_size)
    return right.mean(axis=0)


def _right(model: Any, images: Array, labels: Array, every: Motion) -> Bool[Array, "n k"]:
    def right(motion: Motion) -> Bool[Array, "n"]:
        return jnp.argmax(model(move(images, motion)).scores, axis=-1) == labels

    return jnp.swapaxes(lax.map(right, every), 0, 1)
