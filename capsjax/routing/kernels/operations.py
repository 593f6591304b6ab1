"""What routing by agreement and EM routing ask of votes, each as one operation.

  attend     r_i· = softmax_j(<v_ij, q_j>),  s_j = Σ_i r_ij v_ij
  moments    t_j = Σ_i c_ij,  Σ_i c_ij v_ij,  Σ_i c_ij (v_ij − μ_j)²  with μ the mean     (M-step)
  distance   <w_j, (v_ij − μ_j)²>                                                        (E-step)

Their cotangents are one pass each. That of `attend` recomputes the couplings, so that none are kept
for the backward pass. Those of EM are derivatives of one scalar E + Q = Σ_ij c_ij (<v_ij, q_j> +
<w_j, e_ij²>), where e = v − μ: for the moments by c, P and W, with their cotangents for q and w;
for the distance by w, μ, P and W, with its cotangent for c. A sum of squares is least about the
mean, so its derivative by μ is zero and the moments need no term for μ.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array

from capsjax.routing.kernels import derivatives
from capsjax.routing.kernels.derivatives import agreement, combine, scatter
from capsjax.routing.kernels.forms import Form
from capsjax.routing.kernels.fused import Fused, Results
from capsjax.routing.kernels.softmax import softmax
from capsjax.routing.kernels.terms import Operands

LEAST_TOTAL = 1e-15  # below, the squares in the gradient of the quotient overflow


def attend(poses: Array, weights: Array, parents: Array) -> tuple[Array, Array]:
    """Returns the sums s [*batch, J, A, Y] and the couplings r [*batch, I, J]."""
    sums, coupling = _attention(poses, weights, parents)
    return sums, coupling


def moments(coupling: Array, poses: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Returns Σ_i c_ij v_ij, Σ_i c_ij (v_ij − μ_j)² [*batch, J, A, Y], t = Σ_i c_ij [*batch, J].

    The mean μ is the first divided by t, or by LEAST_TOTAL where t is less.
    """
    sums, squares, total, _ = _moments(coupling, poses, weights)
    return sums, squares, total


def distance(poses: Array, weights: Array, means: Array, precision: Array) -> Array:
    """Returns <w_j, (P_i W_ij − μ_j)²> [*batch, I, J]."""
    return _distance(poses, weights, means, precision)[0]


def _coupling(poses: Array, weights: Array, parents: Array) -> Array:
    return softmax(agreement(poses, weights, parents))


def _compose_attention(poses: Array, weights: Array, parents: Array) -> Results:
    coupling = _coupling(poses, weights, parents)
    return [combine(coupling, poses, weights), coupling]


def _attention_forward(form: Form) -> Callable[..., Results] | None:
    # XLA removes whichever of the two nothing asks for, which is nearly always the coupling.
    kernel = form.attend
    return kernel and (lambda *operands: [kernel(*operands), _coupling(*operands)])


def _attention_backward(form: Form) -> Callable[..., Operands] | None:
    kernel = form.attend_backward
    return kernel and (lambda known, cotangents, wrt: kernel(*known.values(), cotangents["q"]))


def _sums(coupling: Array, poses: Array, weights: Array) -> tuple[Array, Array]:
    return combine(coupling, poses, weights), jnp.sum(coupling, axis=-2)


def _compose_moments(
    coupling: Array,
    poses: Array,
    weights: Array,
    about: Array | None = None,
    *,
    sums_and_total: Callable[..., tuple[Array, Array]] = _sums,
) -> Results:
    """Returns the moments, and the means; the squares `about` other numbers than these."""
    sums, total = sums_and_total(coupling, poses, weights)
    means = sums / jnp.maximum(total, LEAST_TOTAL)[..., None, None]
    squares = scatter(coupling, poses, weights, means if about is None else about)
    return [sums, squares, total, means]


def _moments_backward(form: Form) -> Callable[..., Operands] | None:
    kernel = form.gradients
    if kernel is None:
        return None

    def evaluate(known: Operands, cotangents: Operands, *, wrt: str) -> Operands:
        gradients = kernel(known | {letter: cotangents[letter] for letter in "qw"}, wrt=wrt)
        if "c" in wrt:
            gradients["c"] += cotangents["t"][..., None, :]
        return gradients

    return evaluate


def _distance_backward(form: Form) -> Callable[..., Operands] | None:
    kernel = form.gradients
    return kernel and (lambda known, cotangents, wrt: kernel(known | cotangents, wrt=wrt))


_attention = Fused(
    "capsjax_attention",
    operands="pkq",
    results="qc",
    compose=_compose_attention,
    forward=_attention_forward,
    backward=_attention_backward,
    cotangents="q",
)
_moments = Fused(
    "capsjax_moments",
    operands="cpk",
    results="qwtm",
    compose=_compose_moments,
    kept="m",
    forward=lambda form: form.sums and partial(_compose_moments, sums_and_total=form.sums),
    backward=_moments_backward,
    cotangents="qwt",
)
_distance = Fused(
    "capsjax_distance",
    operands="pkmw",
    results="c",
    compose=lambda *operands: [derivatives.distance(*operands)],
    backward=_distance_backward,
    cotangents="c",
)
