"""Images moved by one factor of variation at a time: turned, shifted, scaled or slanted.

| factor | amount |
| --- | --- |
| rotation | degrees, counter-clockwise as seen |
| x, y | pixels to the right, pixels down |
| scale | factor for rows and columns: 1 leaves the image as it is |
| shear_x | columns to the right per row downwards: 1 slants by 45° |
| shear_y | rows down per column to the right |

All about the image's centre, bilinear, black outside (`capsjax.data.affine`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int, Num

from capsjax._names import lookup
from capsjax.data.affine import affine_matrix, transform
from capsjax.evaluation.batches import check_labels, in_batches, outline
from capsjax.functional import check_range


class Motion(NamedTuple):
    """What `capsjax.data.affine.transform` does to an image; with leading axes, several."""

    matrix: Float[Array, "*k 2 2"]  #: from input to output points (row, column)
    translation: Float[Array, "*k 2"]  #: rows down and columns to the right


_HERE = (0.0, 0.0)
_MOTIONS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "rotation": lambda degrees: (affine_matrix(rotation=degrees), _HERE),
    "x": lambda pixels: (jnp.eye(2), (0.0, pixels)),
    "y": lambda pixels: (jnp.eye(2), (pixels, 0.0)),
    "scale": lambda size: (affine_matrix(scale=(size, size)), _HERE),
    "shear_x": lambda slant: (affine_matrix(shear=slant), _HERE),
    "shear_y": lambda slant: (jnp.array([[1.0, slant], [0.0, 1.0]]), _HERE),
}
FACTORS = tuple(_MOTIONS)


def motions(factor: str, amounts: Sequence[float] | Float[np.ndarray, "k"]) -> Motion:
    """Returns the motions by each of `amounts` of `factor`, one of `FACTORS`."""
    motion = lookup("factor", factor, _MOTIONS)
    values = np.asarray(amounts, np.float32)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise ValueError(f"amounts must be a list of finite numbers, got {amounts!r}")
    if factor == "scale" and values.min() <= 0:
        raise ValueError(f"amounts of scale must be positive, got {values.min()}")
    matrices, translations = zip(*(motion(float(v)) for v in values), strict=True)
    return Motion(jnp.stack(matrices), jnp.asarray(translations))


def move(images: Num[Array, "n h w c"], motion: Motion) -> Float[Array, "n h w c"]:
    """Moves all images by one motion, on a canvas of their size; floats in [0, 1], or uint8.

    The first of several motions is `jax.tree.map(lambda x: x[0], motions(…))`.
    """
    if jnp.shape(motion.translation) != (2,):
        raise ValueError(f"motion must be one, got those of {len(motion.translation)}: see `move`")
    check_range(images)
    size = (images.shape[1], images.shape[2])
    return jax.vmap(lambda image: transform(image, *motion, size))(images)


def moved_poses(
    model: nnx.Module,
    images: Num[np.ndarray, "n h w c"],
    labels: Int[np.ndarray, "n"],
    factor: str,
    amounts: Sequence[float] | Float[np.ndarray, "k"],
    *,
    batch_size: int = 128,
) -> Float[np.ndarray, "n k d"]:
    """Returns the pose of each image's true class, for the image moved by each of `amounts`.

    If a network's units belong to no class (ConvNet-R), it is the group at the label's index.
    """
    every = motions(factor, amounts)
    poses = outline(model, images.shape[1:]).poses
    if poses is None:
        raise ValueError(f"this {type(model).__name__} has no class poses to look at")
    check_labels(labels, images, poses.shape[1])
    return in_batches(_true_poses, model, (images, labels), every, batch_size=batch_size)


def _true_poses(model: Any, images: Array, labels: Array, every: Motion) -> Array:
    def poses(motion: Motion) -> Float[Array, "n d"]:
        return model(move(images, motion)).poses[jnp.arange(len(labels)), labels]

    return jnp.swapaxes(lax.map(poses, every), 0, 1)
