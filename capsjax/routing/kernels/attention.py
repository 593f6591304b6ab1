"""One iteration of routing by agreement as one operation.

  r_i· = softmax_j(<P_i W_ij, q_j>)       s_j = Σ_i r_ij P_i W_ij

Its cotangent recomputes the couplings from P, W and q, so that none are kept for the backward pass.
"""

from typing import Any

import jax
from jaxtyping import Array

from capsjax.routing.kernels.derivatives import agreement, combine
from capsjax.routing.kernels.forms import Form
from capsjax.routing.kernels.fused import Fused, Kernel
from capsjax.routing.kernels.terms import Operands


def attend(poses: Array, kernel: Array, parents: Array) -> tuple[Array, Array]:
    """The sums s [*batch, J, A, Y] and the couplings r [*batch, I, J]."""
    sums, coupling = _attention(poses, kernel, parents)
    return sums, coupling


def _compose(poses: Array, kernel: Array, parents: Array) -> list[Array]:
    coupling = jax.nn.softmax(agreement(poses, kernel, parents), axis=-1)
    return [combine(coupling, poses, kernel), coupling]


def _forward(form: Form) -> Kernel | None:
    if form.attend is None:
        return None
    kernel_of_sums = form.attend

    def evaluate(poses: Array, kernel: Array, parents: Array) -> list[Array]:
        # XLA removes whichever of the two nothing asks for, which is nearly always the coupling.
        coupling = jax.nn.softmax(agreement(poses, kernel, parents), axis=-1)
        return [kernel_of_sums(poses, kernel, parents), coupling]

    return evaluate


def _backward(form: Form, of: str) -> Kernel | None:
    if form.attend_backward is None or of != "q":
        return None
    kernel_of_gradients = form.attend_backward

    def evaluate(values: Operands, cotangents: Operands, **_: Any) -> Operands:
        p, k, q = (values[letter] for letter in "pkq")
        return kernel_of_gradients(p, k, q, cotangents["q"])

    return evaluate


_attention = Fused(
    "capsjax_attention",
    operands="pkq",
    results="qc",
    compose=_compose,
    about=_compose,
    forward=_forward,
    backward=_backward,
)
