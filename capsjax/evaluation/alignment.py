"""Alignment: whether a transformation moves a pose along one direction (Choi et al. 2019)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32, safe_norm

# Table 3's columns: factor and amounts, in degrees and pixels, for `transformations.moved_poses`.
TRANSFORMATIONS = {
    f"{factor}{sign}": (factor, tuple(float(sign + "1") * size * n for n in range(1, 6)))
    for factor, size in (("rotation", 5.0), ("x", 1.0), ("y", 1.0))
    for sign in "+-"
}


class Alignment(NamedTuple):
    ratios: Float[Array, "*batch k"]  #: |v_i · ṽ| / |v_i|: 1 on the line, 0 across; NaN if v_i = 0
    direction: Float[Array, "*batch d"]  #: ṽ, of length 1, turned so that Σ_i v_i · ṽ ≥ 0


def align(differences: Float[Array | np.ndarray, "*batch k d"]) -> Alignment:
    """Finds the direction nearest to k vectors and their alignment (Choi et al. 2019, eq. 12–15).

    The `differences` are v_i = u(T_i(x)) − u(x), of the pose of the true class; ṽ is their first
    right-singular vector, without centring. Random vectors are a reference: five standard normal
    ones give .462 ± .269 in R^32 and .498 ± .277 in R^16 (mean and standard deviation of r). The
    .311 ± .262 that the paper prints cannot come from its formula: of five vectors of equal length,
    the mean of r² is at least 1/5.
    """
    v = at_least_float32(jnp.asarray(differences))
    direction = jnp.linalg.svd(v, full_matrices=False)[2][..., 0, :]
    # Sums of products: a matrix product may be rounded to bfloat16 on accelerators.
    along = jnp.sum(v * direction[..., None, :], axis=-1)
    sign = jnp.where(jnp.sum(along, axis=-1) < 0, -1, 1)
    return Alignment(jnp.abs(along) / safe_norm(v), direction * sign[..., None])


def direction_cosines(
    positive: Float[Array | np.ndarray, "*batch d"], negative: Float[Array | np.ndarray, "*batch d"]
) -> Float[Array, "*batch"]:
    """Returns the cosine between ṽ of positive and of negative transformations (figure 4).

    −1 where a pose moves back along the line on which it moved forth, 1 where both go one way.
    """
    # Unit vectors; rounding must not put a cosine outside the histogram.
    return jnp.clip(jnp.sum(positive * negative, axis=-1), -1, 1)
