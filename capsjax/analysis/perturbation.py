"""What each number of a pose means, seen by moving it."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def symmetric_offsets(limit: float = 0.25, step: float = 0.05) -> Float[np.ndarray, "k"]:
    """−limit, …, −step, 0, step, …, limit; the defaults are those of Sabour et al. 2017, figure 4.

    Raises:
      ValueError: `limit` is no positive multiple of `step`.
    """
    count = round(limit / step) if step > 0 else 0
    if count < 1 or not np.isclose(count * step, limit):
        raise ValueError(f"limit must be a positive multiple of step, got {limit} and {step}")
    return np.arange(-count, count + 1) * (limit / count)


def perturb(
    poses: Float[Array, "*batch d"], offsets: Float[Array, "k"] | Float[np.ndarray, "k"]
) -> Float[Array, "*batch d k d"]:
    """Every pose with one of its elements moved: `result[..., e, j, :]` has offset j on element e.

    For a decoder (Sabour et al. 2017, figure 4; Choi et al. 2019, figure 3), which need not see
    lengths below 1: nothing is normalised.
    """
    d = poses.shape[-1]
    moves = jnp.asarray(offsets, poses.dtype)[:, None] * jnp.eye(d, dtype=poses.dtype)[:, None, :]
    return poses[..., None, None, :] + moves
