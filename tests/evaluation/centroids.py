"""A network whose poses are known: where the ink of an image lies."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from capsjax.functional import to_unit
from capsjax.models import Output

SIZE = 13


class Centroids(nnx.Module):
    """Class 0 is "left of the middle", class 1 "right". The pose is (row, column, 0, 0).

    Row and column are those of the ink's centre, seen from the middle of the image; the pose of
    class 1 is the negative of class 0's.
    """

    def __init__(self):
        self.places = nnx.Param(jnp.arange(SIZE) - (SIZE - 1) / 2)

    def __call__(self, images, *, mask=None, keys=None, capture=False):
        ink = to_unit(images)[..., 0]
        ink /= ink.sum(axis=(1, 2), keepdims=True)
        row = (ink.sum(axis=2) * self.places[...]).sum(axis=1)
        column = (ink.sum(axis=1) * self.places[...]).sum(axis=1)
        pose = jnp.stack([row, column, 0 * row, 0 * row], axis=-1)
        features = {"centre": pose[:, :2]} if capture else {}
        return Output(
            jnp.stack([-column, column], axis=-1),
            jnp.stack([pose, -pose], axis=1),
            features=features,
        )


def dots(*places):
    """Images, each of one blurred dot whose centre is at (row, column) from the middle."""
    images = np.zeros((len(places), SIZE, SIZE, 1), np.uint8)
    for image, (row, column) in zip(images, places, strict=True):
        top, left = row + SIZE // 2, column + SIZE // 2
        image[top - 1 : top + 2, left - 1 : left + 2] = 100
        image[top, left] = 255
    return images
