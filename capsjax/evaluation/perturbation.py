"""What each number of a pose means, seen by moving it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from capsjax.functional import check_floating


def symmetric_offsets(limit: float = 0.25, step: float = 0.05) -> Float[np.ndarray, "k"]:
    """Returns −limit, …, −step, 0, step, …, limit; defaults as Sabour et al. 2017, figure 4."""
    count = round(limit / step) if step > 0 else 0
    if count < 1 or not np.isclose(count * step, limit):
        raise ValueError(f"limit must be a positive multiple of step, got {limit} and {step}")
    return np.arange(-count, count + 1) * (limit / count)


def perturb(
    poses: Float[Array, "*batch d"], offsets: Float[Array | np.ndarray, "k"]
) -> Float[Array, "*batch d k d"]:
    """Moves each element of every pose: `result[..., e, j, :]` has offset j on element e.

    For a decoder (Sabour et al. 2017, figure 4; Choi et al. 2019, figure 3). Nothing is normalised.
    """
    check_floating("poses", poses)
    d = poses.shape[-1]
    moves = jnp.asarray(offsets, poses.dtype)[:, None] * jnp.eye(d, dtype=poses.dtype)[:, None, :]
    return poses[..., None, None, :] + moves


def reconstruct_perturbed(
    decoder: Callable[[jax.Array, jax.Array], jax.Array],
    poses: Float[jax.Array, "classes d"],
    label: int,
    offsets: Float[np.ndarray, "k"],
    *,
    conditional: bool = True,
) -> Float[np.ndarray, "d k h w c"]:
    """Decodes one image with every element of the pose of class `label` moved; see `perturb`.

    Args:
      decoder: from [n, classes, d] poses and [n, classes] masks to images, as a model's.
      conditional: whether the decoder sees class `label` alone; otherwise it sees all classes, the
        others unmoved ("normal" reconstruction).
    """
    if decoder is None:
        raise ValueError("decoder is None: this network has none (some releases leave it out)")
    if poses.ndim != 2:
        raise ValueError(f"poses must be of one image, [classes, d]; got {poses.shape}")
    num_classes, d = poses.shape
    if not 0 <= label < num_classes:
        raise ValueError(f"label must be a class, 0 to {num_classes - 1}, got {label}")
    moved = perturb(poses[label], offsets).reshape(-1, d)
    every = jnp.broadcast_to(poses, (len(moved), num_classes, d)).at[:, label].set(moved)
    seen = jax.nn.one_hot(label, num_classes) if conditional else jnp.ones(num_classes)
    images = np.asarray(decoder(every, jnp.broadcast_to(seen, (len(moved), num_classes))))
    return images.reshape(d, len(offsets), *images.shape[1:])
