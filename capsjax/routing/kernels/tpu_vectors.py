"""Pallas kernels for TPUs, vector poses: products on the matrix units, no vote ever formed.

With A = 1 the agreement <u_i W_ij, q_j> is u_i · (W_ij q_j), and Σ_i r_ij u_i W_ij the product of
W_j with the weighted poses r_ij u_i: two matrix products over blocks of 128 children at 128
positions, one for each entry of a pose and each parent. What lies between them, and the couplings,
never leave the chip. As everywhere on TPUs, `jax_default_matmul_precision` says how exact the
products of float32 are.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array

from capsjax.routing.kernels import mosaic, settings
from capsjax.routing.kernels.mosaic import LANES, Layout
from capsjax.routing.kernels.softmax import exponentials
from capsjax.routing.kernels.terms import AXES, Operands

_TILE = LANES  # rows and columns of a matrix unit


def attend(poses: Array, weights: Array, parents: Array) -> Array:
    """Returns the sums of one iteration of routing by agreement."""
    plan = _Plan({"p": poses, "k": weights, "q": parents}, "q")

    def body(p: Any, k: Any, q: Any, sums: Any, coupling: Any) -> None:
        plan.zero_at_first_child(sums)

        def tile(at: Any) -> None:
            def agree(j: Any) -> None:
                coupling[j] = _agreement(p, k, q, j, at)  # [128 children, 128 positions]

            def add(j: Any) -> None:
                sums[j, :, at] += _combined(p, k, coupling[j], j, at)  # [Y, 128 positions]

            plan.each_parent(agree)
            plan.softmax(coupling)
            plan.each_parent(add)

        plan.each_tile(tile)

    return plan.for_children("attend_vectors", body, tiles=1)["q"]


def attend_backward(
    poses: Array, weights: Array, parents: Array, cotangent: Array
) -> dict[str, Array]:
    """Returns the cotangents of poses, weights and parents (see tpu.attend_backward)."""
    plan = _Plan({"p": poses, "k": weights, "q": parents, "w": cotangent}, "pkq")

    def body(p: Any, k: Any, q: Any, g: Any, *refs: Any) -> None:
        to_p, to_k, to_q, coupling, rate = refs
        plan.zero_at_first_child(to_q)
        to_k[...] = jnp.zeros_like(to_k)

        def tile(at: Any) -> None:
            def agree(j: Any) -> None:
                coupling[j] = _agreement(p, k, q, j, at)  # [128 children, 128 positions]
                rate[j] = _agreement(p, k, g, j, at)

            plan.each_parent(agree)
            plan.softmax(coupling)
            mean = plan.fold(jnp.add, lambda j: coupling[j] * rate[j])
            for x in range(p.shape[0]):
                to_p[x, :, at] = jnp.zeros((_TILE, _TILE), jnp.float32)

            def add(j: Any) -> None:
                shares = coupling[j]  # r
                rates = shares * (rate[j] - mean)  # t
                to_q[j, :, at] += _combined(p, k, rates, j, at)  # [Y, 128 positions]
                for x in range(p.shape[0]):
                    pose = p[x, :, at]  # [128 children, 128 positions]
                    of_sums, of_logits = g[j, :, at], q[j, :, at]  # [Y, 128 positions]
                    to_k[0, j, :, x, :] += _dot(of_sums, shares * pose, 1, 1)  # [Y, 128 children]
                    to_k[0, j, :, x, :] += _dot(of_logits, rates * pose, 1, 1)
                    to_p[x, :, at] += shares * _dot(k[j, :, x, :], of_sums, 0, 0)
                    to_p[x, :, at] += rates * _dot(k[j, :, x, :], of_logits, 0, 0)

            plan.each_parent(add)

        plan.each_tile(tile)

    return plan.for_children("attend_vectors_backward", body, tiles=2)


def _agreement(p: Any, k: Any, q: Any, j: Any, at: Any) -> Array:
    """Returns u_i · (W_ij q_j), [children, positions]."""
    parent = q[j, :, at]  # [Y, positions]
    terms = (p[x, :, at] * _dot(k[j, :, x, :], parent, 0, 0) for x in range(p.shape[0]))
    return sum(terms, start=jnp.zeros((_TILE, _TILE), jnp.float32))


def _combined(p: Any, k: Any, coupling: Array, j: Any, at: Any) -> Array:
    """Returns Σ_i c_ij u_i W_ij, [Y, positions]."""
    terms = (_dot(k[j, :, x, :], coupling * p[x, :, at], 1, 0) for x in range(p.shape[0]))
    return sum(terms, start=jnp.zeros((k.shape[1], _TILE), jnp.float32))


def _dot(left: Array, right: Array, left_axis: int, right_axis: int) -> Array:
    """Returns the product of two matrices, contracted over one axis of each."""
    axes = (((left_axis,), (right_axis,)), ((), ()))
    return lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)


class _Plan(mosaic.Plan):
    """How a problem is laid out and divided: 128 children in each step."""

    @property
    def steps(self) -> int:
        return pl.cdiv(self.sizes.children, _TILE)

    def layout(self, letter: str) -> Layout:
        """Returns how an operand lies: I' and N' are the next multiples of 128."""
        _, children, parents, _, columns, width = self.sizes
        positions, length = self.sizes.positions, self.length
        all_children, all_positions = self.steps * _TILE, self.num_blocks * length
        match AXES[letter]:
            case "ixjy":  # [J, Y, X, I']
                return Layout(
                    (parents, width, columns, all_children),
                    (parents, width, columns, _TILE),
                    lambda block, child: (0, 0, 0, child),
                    arrange=lambda x: x.transpose(2, 3, 1, 0),
                    restore=lambda x: x[..., :children].transpose(3, 2, 0, 1),
                )
            case "iax":  # [X, I', N']
                return Layout(
                    (columns, all_children, all_positions),
                    (columns, _TILE, length),
                    lambda block, child: (0, child, block),
                    arrange=lambda x: x[:, :, 0].T,
                    restore=lambda x: x[:, :children, :positions].T[:, :, None],
                )
            case _:  # [J, Y, N']
                return Layout(
                    (parents, width, all_positions),
                    (parents, width, length),
                    lambda block, child: (0, 0, block),
                    arrange=lambda x: x[:, :, 0].transpose(1, 2, 0),
                    restore=lambda x: x[..., :positions].transpose(2, 0, 1)[:, :, None],
                )

    def for_children(self, name: str, body: Callable[..., None], *, tiles: int) -> Operands:
        """Runs `body` with every 128 children, and `tiles` numbers for each of their votes."""
        shape = (self.sizes.parents, _TILE, _TILE)
        products = 4 * 6 * self.sizes.parents * self.sizes.products * _TILE
        return self.call(name, body, [shape] * tiles, spare_bytes=products)

    def each_parent(self, body: Callable[[Any], None]) -> None:
        """Calls `body` with the number of each parent."""
        lax.fori_loop(0, self.sizes.parents, lambda j, _: body(j), None)

    def softmax(self, logits: Any) -> None:
        """Normalises over the parents of [J, 128, 128], in place."""
        once = not settings.current.interpret
        largest = self.fold(jnp.maximum, lambda j: logits[j])

        def exponentiate(j: Any) -> None:
            logits[j] = exponentials(logits[j], largest, computed_once=once)

        self.each_parent(exponentiate)
        inverse = 1 / self.fold(jnp.add, lambda j: logits[j])

        def divide(j: Any) -> None:
            logits[j] *= inverse

        self.each_parent(divide)

    def fold(self, f: Callable[[Array, Array], Array], value: Callable[[Any], Array]) -> Array:
        """Applies `f` between the values of all parents."""
        return lax.fori_loop(1, self.sizes.parents, lambda j, x: f(x, value(j)), value(0))
