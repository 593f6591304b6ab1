"""One iteration of routing by agreement as one operation.

  r_i· = softmax_j(<P_i W_ij, q_j>)       s_j = Σ_i r_ij P_i W_ij

Its cotangent recomputes the couplings from P, W and q, so that none are kept for the backward pass.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from capsjax.routing.kernels.derivatives import agreement, combine
from capsjax.routing.kernels.forms import Form
from capsjax.routing.kernels.fused import Fused, Results
from capsjax.routing.kernels.softmax import softmax
from capsjax.routing.kernels.terms import Operands


def attend(poses: Array, weights: Array, parents: Array) -> tuple[Array, Array]:
    """Returns the sums s [*batch, J, A, Y] and the couplings r [*batch, I, J]."""
    sums, coupling = _attention(poses, weights, parents)
    return sums, coupling


def _coupling(poses: Array, weights: Array, parents: Array) -> Array:
    return softmax(agreement(poses, weights, parents))


def _compose(poses: Array, weights: Array, parents: Array) -> Results:
    coupling = _coupling(poses, weights, parents)
    return [combine(coupling, poses, weights), coupling]


def _forward(form: Form) -> Callable[..., Results] | None:
    # XLA removes whichever of the two nothing asks for, which is nearly always the coupling.
    kernel = form.attend
    return kernel and (lambda *operands: [kernel(*operands), _coupling(*operands)])


def _backward(form: Form, inputs: str) -> Callable[..., Operands] | None:
    kernel = form.attend_backward
    if kernel is None or inputs != "q":
        return None

    def evaluate(known: Operands, cotangents: Operands, **_: Any) -> Operands:
        return kernel(*known.values(), cotangents["q"])

    return evaluate


_attention = Fused(
    "capsjax_attention",
    operands="pkq",
    results="qc",
    compose=_compose,
    forward=_forward,
    backward=_backward,
)
