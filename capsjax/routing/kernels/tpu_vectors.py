"""Pallas kernels for TPUs, vector poses: products on the matrix units, no vote ever formed.

With A = 1 the agreement <u_i W_ij, q_j> is u_i · (W_ij q_j), and Σ_i r_ij u_i W_ij the product of
W_j with the weighted poses r_ij u_i: two matrix products over blocks of 128 children at 128
positions, one for each entry of a pose and each parent. What lies between them, and the couplings,
never leave the chip. As everywhere on TPUs, `jax_default_matmul_precision` says how exact the
products of float32 are.

Laid out for that, operands are p [X, I', N'], k [J, Y, X, I'] and q [J, Y, N'], with I' and N' the
next multiples of 128. Padding is zero.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from capsjax.routing.kernels import blocks, forms
from capsjax.routing.kernels.adapter import kernel_result
from capsjax.routing.kernels.terms import Operands, Sizes, sizes_of

_TILE = 128  # lanes of a register, and rows and columns of a matrix unit
_BLOCK_BYTES = 24 * 2**20  # on the chip, for operands and results of one step
_SPARE_BYTES = 8 * 2**20  # for the compiler


def attend(poses: Array, kernel: Array, parents: Array) -> Array:
    """The sums of one iteration of routing by agreement."""
    operands = {"p": poses, "k": kernel, "q": parents}
    plan = _Plan.of(sizes_of(list(operands), list(operands.values())), "pkqq")

    def body(p: Any, k: Any, q: Any, sums: Any, coupling: Any) -> None:
        _zero_at_first_child(plan, sums)

        def tile(at: Any) -> None:
            def agree(j: Any) -> None:
                coupling[j] = _agreement(p, k, q, j, at)

            def add(j: Any) -> None:
                sums[j, :, at] += _combined(p, k, coupling[j], j, at)

            plan.each_parent(agree)
            _softmax(plan, coupling)
            plan.each_parent(add)

        plan.each_tile(tile)

    (result,) = plan.call("attend_vectors", body, operands, "q", scratch=1)
    return result


def attend_backward(
    poses: Array, kernel: Array, parents: Array, cotangent: Array
) -> dict[str, Array]:
    """The cotangents of poses, kernel and parents for that of the sums: tpu.attend_backward."""
    operands = {"p": poses, "k": kernel, "q": parents, "w": cotangent}
    plan = _Plan.of(sizes_of(list(operands), list(operands.values())), "pkqwpkq")

    def body(p: Any, k: Any, q: Any, g: Any, *refs: Any) -> None:
        to_p, to_k, to_q, coupling, rate = refs
        _zero_at_first_child(plan, to_q)
        to_k[...] = jnp.zeros_like(to_k)

        def tile(at: Any) -> None:
            def agree(j: Any) -> None:
                coupling[j] = _agreement(p, k, q, j, at)
                rate[j] = _agreement(p, k, g, j, at)

            plan.each_parent(agree)
            _softmax(plan, coupling)
            mean = plan.sum_over_parents(lambda j: coupling[j] * rate[j])
            for x in range(p.shape[0]):
                to_p[x, :, at] = jnp.zeros((_TILE, _TILE), jnp.float32)

            def add(j: Any) -> None:
                shares = coupling[j]
                rates = shares * (rate[j] - mean)
                to_q[j, :, at] += _combined(p, k, rates, j, at)
                for x in range(p.shape[0]):
                    pose = p[x, :, at]
                    of_sums, of_logits = g[j, :, at], q[j, :, at]
                    to_k[0, j, :, x, :] += _dot(of_sums, shares * pose, 1, 1)
                    to_k[0, j, :, x, :] += _dot(of_logits, rates * pose, 1, 1)
                    to_p[x, :, at] += shares * _dot(k[j, :, x, :], of_sums, 0, 0)
                    to_p[x, :, at] += rates * _dot(k[j, :, x, :], of_logits, 0, 0)

            plan.each_parent(add)

        plan.each_tile(tile)

    results = plan.call("attend_vectors_backward", body, operands, "pkq", scratch=2)
    return dict(zip("pkq", results, strict=True))


def _agreement(p: Any, k: Any, q: Any, j: Any, at: Any) -> Array:
    """u_i · (W_ij q_j), [children, positions]."""
    parent = q[j, :, at]
    terms = (p[x, :, at] * _dot(k[j, :, x, :], parent, 0, 0) for x in range(p.shape[0]))
    return sum(terms, start=jnp.zeros((_TILE, _TILE), jnp.float32))


def _combined(p: Any, k: Any, coupling: Array, j: Any, at: Any) -> Array:
    """Σ_i c_ij u_i W_ij, [Y, positions]."""
    terms = (_dot(k[j, :, x, :], coupling * p[x, :, at], 1, 0) for x in range(p.shape[0]))
    return sum(terms, start=jnp.zeros((k.shape[1], _TILE), jnp.float32))


def _dot(left: Array, right: Array, left_axis: int, right_axis: int) -> Array:
    """The product of two matrices, contracted over one axis of each."""
    axes = (((left_axis,), (right_axis,)), ((), ()))
    return lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)


def _softmax(plan: "_Plan", logits: Any) -> None:
    """softmax over the parents, in place."""
    largest = plan.fold(jnp.maximum, lambda j: logits[j])

    def exponentiate(j: Any) -> None:
        logits[j] = jnp.exp(logits[j] - largest)

    plan.each_parent(exponentiate)
    inverse = 1 / plan.sum_over_parents(lambda j: logits[j])

    def divide(j: Any) -> None:
        logits[j] *= inverse

    plan.each_parent(divide)


def _zero_at_first_child(plan: "_Plan", ref: Any) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        def clear(at: Any) -> None:
            ref[:, :, at] = jnp.zeros((*ref.shape[:2], _TILE), ref.dtype)

        plan.each_tile(clear)


class _Plan(NamedTuple):
    """How a problem is laid out and divided."""

    sizes: Sizes
    length: int  # positions in a block, a multiple of 128
    num_blocks: int

    @classmethod
    def of(cls, sizes: Sizes, letters: str) -> "_Plan":
        """The plan for operands and results with these letters."""
        numbers = 0  # that a block holds for each of its positions
        for letter in letters:
            if letter == "p":
                numbers += sizes.columns * _TILE
            elif letter != "k":
                numbers += sizes.parents * sizes.width
        tiles = pl.cdiv(sizes.positions, _TILE)
        # Every buffer is there twice: one is computed on while the other is filled.
        length = blocks.even_length(tiles, _BLOCK_BYTES // (2 * 4 * numbers * _TILE))
        return cls(sizes, length * _TILE, pl.cdiv(tiles, length))

    @property
    def child_blocks(self) -> int:
        """Blocks of 128 children."""
        return pl.cdiv(self.sizes.children, _TILE)

    def call(
        self, name: str, body: Callable[..., None], operands: Operands, results: str, scratch: int
    ) -> list[Array]:
        """Runs `body` for every 128 children of every block of positions."""
        sizes = self.sizes
        flattened = blocks.flatten_batch(operands, sizes)
        like = flattened["p"]
        tiles = (sizes.parents, _TILE, _TILE)
        small = 4 * (scratch * math.prod(tiles) + 6 * sizes.parents * sizes.products * _TILE)
        outputs = pl.pallas_call(
            body,
            name=name,
            grid=(self.num_blocks, self.child_blocks),
            in_specs=[self._spec(letter) for letter in flattened],
            out_specs=[self._spec(letter, result=True) for letter in results],
            out_shape=[kernel_result(self._shape(letter, result=True), like) for letter in results],
            scratch_shapes=[pltpu.VMEM(tiles, jnp.float32)] * scratch,
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=_BLOCK_BYTES + _SPARE_BYTES + small,
            ),
            interpret=forms.interpret_mode(),
        )(*(self._lay_out(letter, x) for letter, x in flattened.items()))
        return [self._restore(letter, x) for letter, x in zip(results, outputs, strict=True)]

    def each_tile(self, body: Callable[[Any], None]) -> None:
        """Calls `body` with the lanes of each 128 positions of a block."""

        def step(number: Array, _: None) -> None:
            body(pl.ds(pl.multiple_of(number * _TILE, _TILE), _TILE))

        lax.fori_loop(0, self.length // _TILE, step, None)

    def each_parent(self, body: Callable[[Any], None]) -> None:
        """Calls `body` with the number of each parent."""
        lax.fori_loop(0, self.sizes.parents, lambda j, _: body(j), None)

    def fold(self, f: Callable[[Array, Array], Array], value: Callable[[Any], Array]) -> Array:
        """`f` between the values of all parents."""
        return lax.fori_loop(1, self.sizes.parents, lambda j, x: f(x, value(j)), value(0))

    def sum_over_parents(self, value: Callable[[Any], Array]) -> Array:
        """The sum of the values of all parents."""
        return self.fold(jnp.add, value)

    def _shape(self, letter: str, *, result: bool = False) -> tuple[int, ...]:
        sizes = self.sizes
        children, positions = self.child_blocks * _TILE, self.num_blocks * self.length
        if letter == "k":  # as a result, a part from each block
            parts = (self.num_blocks,) * result
            return *parts, sizes.parents, sizes.width, sizes.columns, children
        if letter == "p":
            return sizes.columns, children, positions
        return sizes.parents, sizes.width, positions

    def _spec(self, letter: str, *, result: bool = False) -> pl.BlockSpec:
        shape = self._shape(letter, result=result)
        if letter == "k" and result:
            return pl.BlockSpec((1, *shape[1:4], _TILE), lambda n, i: (n, 0, 0, 0, i))
        if letter == "k":
            return pl.BlockSpec((*shape[:3], _TILE), lambda n, i: (0, 0, 0, i))
        if letter == "p":
            return pl.BlockSpec((shape[0], _TILE, self.length), lambda n, i: (0, i, n))
        return pl.BlockSpec((*shape[:2], self.length), lambda n, i: (0, 0, n))

    def _lay_out(self, letter: str, x: Array) -> Array:
        if letter == "k":
            x = x.transpose(2, 3, 1, 0)
        elif letter == "p":
            x = x[:, :, 0].transpose(2, 1, 0)
        else:
            x = x[:, :, 0].transpose(1, 2, 0)
        shape = self._shape(letter)
        return jnp.pad(x, [(0, full - size) for full, size in zip(shape, x.shape, strict=True)])

    def _restore(self, letter: str, x: Array) -> Array:
        """The inverse of `_lay_out`, with all batch axes."""
        sizes = self.sizes
        if letter == "k":
            return jnp.sum(x, axis=0)[..., : sizes.children].transpose(3, 2, 0, 1)
        x = x[..., : sizes.positions]
        order = (2, 1, 0) if letter == "p" else (2, 0, 1)
        x = (x[:, : sizes.children] if letter == "p" else x).transpose(order)
        return x[:, :, None].reshape(*sizes.batch, x.shape[1], 1, x.shape[2])
