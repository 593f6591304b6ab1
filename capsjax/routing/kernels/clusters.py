"""What EM routing asks of votes, as two operations whose cotangents are one pass each.

  moments    t_j = Σ_i c_ij,  Σ_i c_ij v_ij,  Σ_i c_ij (v_ij − μ_j)²  with μ the mean     (M-step)
  distance   <w_j, (v_ij − μ_j)²>                                                        (E-step)

Both cotangents are derivatives of one scalar E + Q = Σ_ij c_ij (<v_ij, q_j> + <w_j, e_ij²>), where
e = v − μ: for the moments by c, P and W, with their cotangents for q and w; for the distance by
w, μ, P and W, with its cotangent for c. A sum of squares is least about the mean, so its derivative
by μ is zero and the first needs no term for μ.
"""

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array

from capsjax.routing.kernels import derivatives
from capsjax.routing.kernels.derivatives import combine, scatter
from capsjax.routing.kernels.forms import Form
from capsjax.routing.kernels.fused import Fused, Kernel
from capsjax.routing.kernels.terms import Operands

LEAST_TOTAL = 1e-15  # below, the squares in the gradient of the quotient overflow


def moments(coupling: Array, poses: Array, kernel: Array) -> tuple[Array, Array, Array]:
    """Σ_i c_ij v_ij, Σ_i c_ij (v_ij − μ_j)², both [*batch, J, A, Y], and t = Σ_i c_ij [*batch, J].

    The mean μ is the first divided by t, or by LEAST_TOTAL where t is less.
    """
    sums, squares, total, _ = _moments(coupling, poses, kernel)
    return sums, squares, total


def distance(poses: Array, kernel: Array, means: Array, precision: Array) -> Array:
    """<w_j, (P_i W_ij − μ_j)²> [*batch, I, J]."""
    (distances,) = _distance(poses, kernel, means, precision)
    return distances


def _mean(sums: Array, total: Array) -> Array:
    return sums / jnp.maximum(total, LEAST_TOTAL)[..., None, None]


def _compose_moments(coupling: Array, poses: Array, kernel: Array) -> list[Array]:
    return _moments_by(_sums, coupling, poses, kernel)


def _sums(coupling: Array, poses: Array, kernel: Array) -> tuple[Array, Array]:
    return combine(coupling, poses, kernel), jnp.sum(coupling, axis=-2)


def _moments_by(
    sums_and_total: Kernel, coupling: Array, poses: Array, kernel: Array
) -> list[Array]:
    sums, total = sums_and_total(coupling, poses, kernel)
    means = _mean(sums, total)
    return [sums, scatter(coupling, poses, kernel, means), total, means]


def _moments_about(coupling: Array, poses: Array, kernel: Array, means: Array) -> list[Array]:
    sums, total = _sums(coupling, poses, kernel)
    return [sums, scatter(coupling, poses, kernel, means), total, _mean(sums, total)]


def _moments_forward(form: Form) -> Kernel | None:
    return None if form.sums is None else partial(_moments_by, form.sums)


def _moments_backward(form: Form, of: str) -> Kernel | None:
    if form.gradients is None or of != "qwt":
        return None
    gradients = form.gradients

    def evaluate(values: Operands, cotangents: Operands, *, wrt: str) -> Operands:
        found = gradients(values | {letter: cotangents[letter] for letter in "qw"}, wrt=wrt)
        if "c" in wrt:
            found["c"] += cotangents["t"][..., None, :]
        return found

    return evaluate


def _compose_distance(poses: Array, kernel: Array, means: Array, precision: Array) -> list[Array]:
    return [derivatives.distance(poses, kernel, means, precision)]


def _distance_backward(form: Form, of: str) -> Kernel | None:
    if form.gradients is None:
        return None
    gradients = form.gradients

    def evaluate(values: Operands, cotangents: Operands, *, wrt: str) -> Operands:
        return gradients(values | cotangents, wrt=wrt)

    return evaluate


_moments = Fused(
    "capsjax_moments",
    operands="cpk",
    results="qwtm",
    compose=_compose_moments,
    about=_moments_about,
    kept="m",
    forward=_moments_forward,
    backward=_moments_backward,
)
_distance = Fused(
    "capsjax_distance",
    operands="pkmw",
    results="c",
    compose=_compose_distance,
    about=_compose_distance,
    backward=_distance_backward,
)
