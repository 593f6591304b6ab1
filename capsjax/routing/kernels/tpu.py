"""Pallas kernels for TPUs: positions on the lanes, parents on the sublanes.

A vector register holds one entry of a vote for 8 parents at 128 positions. For one child at a time
its votes are written out as multiplications and additions of such registers: entries of poses are
read with the same value for all sublanes, entries of the child's kernel are spread over all lanes
once and then serve all positions of a block. The grid goes over blocks of positions and, within
one, over the children; sums over the children stay on the chip meanwhile.

Laid out for that, operands are c [I, J', N], p [I, A·X, N], k [I, J', X·Y] and, a block of M
positions after the other, q [blocks, A·Y, J', M], with J' the next multiple of 8 and M one of 128.
Padding is zero. (c and p, the large ones, are not padded: lanes beyond N are cleared when they are
read.)
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from capsjax.routing.kernels import blocks, einsum, forms, terms
from capsjax.routing.kernels.adapter import kernel_result
from capsjax.routing.kernels.layout import row_major
from capsjax.routing.kernels.terms import (
    KERNELS,
    TERMS,
    Grid,
    Operands,
    Sizes,
    dot,
    flat,
    grid,
    matrix_shape,
    minus,
    operands_of,
    plus,
    product,
    sizes_of,
    times,
    transposed,
)

_LANES, _SUBLANES = 128, 8
_BLOCK_BYTES = 24 * 2**20  # on the chip, for operands and results of one block of positions
_SPARE_BYTES = 8 * 2**20  # for the compiler
_UNROLLED = 4  # groups of 8 parents whose code is written out one after another


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """The derivative of `scalar` by `wrt`."""
    if (scalar, wrt) not in TERMS:
        return einsum.differentiate(operands, scalar=scalar, wrt=wrt)  # needed in forward mode only
    letters = operands_of(scalar, wrt)
    sizes = sizes_of(letters, list(operands.values()))
    plan = _Plan.of(sizes, [*letters, wrt])
    spreads = [letter for letter in letters if letter in KERNELS]

    def body(*refs: Any) -> None:
        inputs = dict(zip(letters, refs, strict=False))
        out, *scratch = refs[len(letters) :]
        spread = dict(zip(spreads, scratch, strict=False))
        child = _Child.of(plan, inputs, spread, sums_positions=wrt in KERNELS)
        sums = scratch[-1]  # of the entries of a pose or kernel
        if wrt in "qw":
            _zero_at_first_child(plan, out)
        if wrt in KERNELS:
            sums[...] = jnp.zeros_like(sums)

        def block(at: Any) -> None:
            if wrt in "pP":
                sums[...] = jnp.zeros_like(sums)

            def group(rows: Any) -> None:
                operands = {letter: child.grid(letter, rows, at) for letter in letters}
                entries = flat(TERMS[scalar, wrt](**operands))
                if wrt == "c":
                    out[0, rows, at] = entries[0]
                elif wrt in "qw":
                    _add(out, entries, rows, at)
                elif wrt in "pP":
                    _add(sums, entries)
                else:
                    _add(sums, entries, rows)

            plan.each_group(group)
            if wrt in "pP":
                _store_pose(out, sums, at)

        plan.each_block(block)
        if wrt in KERNELS:
            _store_kernel(out, sums)

    scratch = [plan.tiles(letter) for letter in spreads]
    if wrt in "kKpP":
        scratch.append(plan.tiles(wrt))
    (result,) = plan.call(f"votes_{scalar}_{wrt}", body, operands, [wrt], scratch)
    return result


def attend(poses: Array, kernel: Array, parents: Array) -> Array:
    """The sums of one iteration of routing by agreement."""
    operands = {"p": poses, "k": kernel, "q": parents}
    sizes = sizes_of(list(operands), list(operands.values()))
    plan = _Plan.of(sizes, "pkqq")

    def body(p: Any, k: Any, q: Any, sums: Any, spread: Any, votes: Any, logits: Any) -> None:
        child = _Child.of(plan, {"p": p, "k": k, "q": q}, {"k": spread})
        _zero_at_first_child(plan, sums)

        def block(at: Any) -> None:
            def agree(rows: Any) -> None:
                voted = child.votes(rows, at)
                _store(votes, flat(voted), rows)
                logits[rows, :] = dot(voted, child.grid("q", rows, at))

            def add(rows: Any) -> None:
                coupling = logits[rows, :]
                voted = [votes[d, rows, :] for d in range(votes.shape[0])]
                _add(sums, [coupling * vote for vote in voted], rows, at)

            plan.each_group(agree)
            logits[...] = _softmax(plan, logits[...])
            plan.each_group(add)

        plan.each_block(block)

    scratch = [plan.tiles("k"), plan.tiles("q"), plan.tile()]
    (result,) = plan.call("attend", body, operands, ["q"], scratch)
    return result


def attend_backward(
    poses: Array, kernel: Array, parents: Array, cotangent: Array
) -> dict[str, Array]:
    """The cotangents of poses, kernel and parents, for that of the sums.

    With g the cotangent of the sums, t_ij = r_ij (<v_ij, g_j> − Σ_j r_ij <v_ij, g_j>) is that of
    the logits, q_j gets Σ_i t_ij v_ij, and all else follows from that of the votes,
    r_ij g_j + t_ij q_j.
    """
    operands = {"p": poses, "k": kernel, "q": parents, "w": cotangent}
    sizes = sizes_of(list(operands), list(operands.values()))
    plan = _Plan.of(sizes, "pkqwpkq")

    def body(p: Any, k: Any, q: Any, g: Any, *refs: Any) -> None:
        to_p, to_k, to_q, spread, votes, logits, rates, sums_p, sums_k = refs
        operands = {"p": p, "k": k, "q": q, "w": g}
        child = _Child.of(plan, operands, {"k": spread}, sums_positions=True)
        _zero_at_first_child(plan, to_q)
        sums_k[...] = jnp.zeros_like(sums_k)

        def block(at: Any) -> None:
            sums_p[...] = jnp.zeros_like(sums_p)

            def agree(rows: Any) -> None:
                voted = child.votes(rows, at)
                _store(votes, flat(voted), rows)
                logits[rows, :] = dot(voted, child.grid("q", rows, at))
                rates[rows, :] = dot(voted, child.grid("w", rows, at))

            def add(rows: Any) -> None:
                coupling, rate = [[logits[rows, :]]], [[rates[rows, :]]]
                voted = [votes[d, rows, :] for d in range(votes.shape[0])]
                _add(to_q, [rate[0][0] * vote for vote in voted], rows, at)
                to_votes = plus(
                    terms.scale(coupling, child.grid("w", rows, at)),
                    terms.scale(rate, child.grid("q", rows, at)),
                )
                kernels = child.grid("k", rows, at)
                _add(sums_p, flat(product(to_votes, transposed(kernels))))
                entries = child.grid("p", rows, at)
                _add(sums_k, flat(product(transposed(entries), to_votes)), rows)

            plan.each_group(agree)
            coupling = _softmax(plan, logits[...])
            mean = jnp.sum(coupling * rates[...], axis=0, keepdims=True)
            rates[...] = coupling * (rates[...] - mean)
            logits[...] = coupling
            plan.each_group(add)
            _store_pose(to_p, sums_p, at)

        plan.each_block(block)
        _store_kernel(to_k, sums_k)

    scratch = [plan.tiles("k"), plan.tiles("q"), plan.tile(), plan.tile()]
    scratch += [plan.tiles("p"), plan.tiles("k")]
    results = plan.call("attend_backward", body, operands, ["p", "k", "q"], scratch)
    return dict(zip("pkq", results, strict=True))


def sums(coupling: Array, poses: Array, kernel: Array) -> tuple[Array, Array]:
    """Σ_i c_ij v_ij and Σ_i c_ij."""
    operands = {"c": coupling, "p": poses, "k": kernel}
    sizes = sizes_of(list(operands), list(operands.values()))
    plan = _Plan.of(sizes, "cpkqt")

    def body(c: Any, p: Any, k: Any, sums: Any, total: Any, spread: Any) -> None:
        child = _Child.of(plan, {"c": c, "p": p, "k": k}, {"k": spread})
        _zero_at_first_child(plan, sums)
        _zero_at_first_child(plan, total)

        def block(at: Any) -> None:
            def group(rows: Any) -> None:
                weight = child.grid("c", rows, at)
                _add(sums, flat(terms.scale(weight, child.votes(rows, at))), rows, at)
                _add(total, flat(weight), rows, at)

            plan.each_group(group)

        plan.each_block(block)

    results = plan.call("sums", body, operands, ["q", "t"], [plan.tiles("k")])
    return results[0], results[1]


def gradients(operands: Operands, *, wrt: str) -> dict[str, Array]:
    """The derivatives of E + Q by the operands in `wrt`; without q, those of Q.

    E + Q = Σ_ij c_ij (<v_ij, q_j> + <w_j, e_ij²>), with e = v − μ: the votes get
    c (q + 2 w e), and all else follows from e.
    """
    letters = list(operands)
    plan = _Plan.of(sizes_of(letters, list(operands.values())), [*letters, *wrt])
    summed = [letter for letter in "pk" if letter in wrt]

    def body(*refs: Any) -> None:
        inputs = dict(zip(letters, refs, strict=False))
        out = dict(zip(wrt, refs[len(letters) :], strict=False))
        spread, *scratch = refs[len(letters) + len(wrt) :]
        sums = dict(zip(summed, scratch, strict=True))
        child = _Child.of(plan, inputs, {"k": spread}, sums_positions="k" in wrt)
        for letter in "mw":  # in one order: a compiled program is found again by its text
            if letter in out:
                _zero_at_first_child(plan, out[letter])
        if "k" in wrt:
            sums["k"][...] = jnp.zeros_like(sums["k"])

        def block(at: Any) -> None:
            if "p" in wrt:
                sums["p"][...] = jnp.zeros_like(sums["p"])

            def group(rows: Any) -> None:
                grids = {letter: child.grid(letter, rows, at) for letter in letters}
                votes = product(grids["p"], grids["k"])
                error = minus(votes, grids["m"])
                weighted = times(grids["w"], error)
                slope = plus(weighted, grids["q"]) if "q" in grids else weighted
                if "c" in wrt:
                    out["c"][0, rows, at] = dot(slope, error)
                if "q" in grids:
                    slope = terms.scale(grids["c"], plus(slope, weighted))
                else:
                    slope = terms.scale([[2 * grids["c"][0][0]]], weighted)
                if "m" in wrt or "w" in wrt:
                    coupled = terms.scale(grids["c"], error)
                if "m" in wrt:
                    _add(out["m"], flat(coupled), rows, at)
                if "w" in wrt:
                    _add(out["w"], flat(times(coupled, error)), rows, at)
                if "p" in wrt:
                    _add(sums["p"], flat(product(slope, transposed(grids["k"]))))
                if "k" in wrt:
                    _add(sums["k"], flat(product(transposed(grids["p"]), slope)), rows)

            plan.each_group(group)
            if "p" in wrt:
                _store_pose(out["p"], sums["p"], at)

        plan.each_block(block)
        if "k" in wrt:
            _store_kernel(out["k"], sums["k"])

    scratch = [plan.tiles(letter) for letter in ["k", *summed]]
    results = plan.call("gradients", body, operands, list(wrt), scratch)
    found = dict(zip(wrt, results, strict=True))
    if "m" in found:  # so far Σ_i c e
        found["m"] *= -2 * operands["w"]
    if "c" in found and "q" in operands:  # so far with <e, q> for <v, q>
        constant = jnp.sum(operands["m"] * operands["q"], axis=(-2, -1))
        found["c"] += constant[..., None, :]
    return found


class _Plan(NamedTuple):
    """How a problem is laid out and divided."""

    sizes: Sizes
    parents: int  # J', a multiple of 8
    length: int  # positions in a block, a multiple of 128
    num_blocks: int

    @classmethod
    def of(cls, sizes: Sizes, letters: Sequence[str]) -> "_Plan":
        """The plan for operands and results with these letters."""
        parents = _up(sizes.parents, _SUBLANES)
        numbers = 0  # that a block holds for each of its positions
        for letter in letters:
            if letter not in KERNELS:
                rows, columns = matrix_shape(letter, sizes)
                numbers += rows * columns * (1 if letter in "pP" else parents)
        tiles = _up(sizes.positions, _LANES) // _LANES
        # Every buffer is there twice: one is computed on while the other is filled.
        most = _BLOCK_BYTES // (2 * 4 * numbers * _LANES)
        length = blocks.even_length(tiles, most)
        return cls(sizes, parents, length * _LANES, -(-tiles // length))

    def call(
        self,
        name: str,
        body: Callable[..., None],
        operands: Operands,
        results: Sequence[str],
        scratch: Sequence[tuple[int, ...]],
    ) -> list[Array]:
        """Runs `body` for every child of every block of positions."""
        flattened = blocks.flatten_batch(operands, self.sizes)
        like = next(iter(flattened.values()))
        outputs = pl.pallas_call(
            body,
            name=name,
            grid=(self.num_blocks, self.sizes.children),
            in_specs=[self._spec(letter) for letter in flattened],
            out_specs=[self._spec(letter, result=True) for letter in results],
            out_shape=[kernel_result(self._shape(letter, result=True), like) for letter in results],
            scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=_BLOCK_BYTES
                + _SPARE_BYTES
                + sum(4 * math.prod(shape) for shape in scratch),
            ),
            interpret=forms.interpret_mode(),
        )(*(self._lay_out(letter, x) for letter, x in flattened.items()))
        return [self._restore(letter, x) for letter, x in zip(results, outputs, strict=True)]

    def each_block(self, body: Callable[[Any], None], when: Any = True) -> None:
        """Calls `body` with the lanes of each 128 positions of a block, or of none."""

        def step(number: Array, _: None) -> None:
            body(pl.ds(pl.multiple_of(number * _LANES, _LANES), _LANES))

        number = self.length // _LANES
        lax.fori_loop(0, number if when is True else jnp.where(when, number, 0), step, None)

    def each_group(self, body: Callable[[Any], None]) -> None:
        """Calls `body` with the sublanes of each 8 parents."""
        groups = self.parents // _SUBLANES
        if groups <= _UNROLLED:
            for group in range(groups):
                body(pl.ds(group * _SUBLANES, _SUBLANES))
            return

        def step(number: Array, _: None) -> None:
            body(pl.ds(pl.multiple_of(number * _SUBLANES, _SUBLANES), _SUBLANES))

        lax.fori_loop(0, groups, step, None)

    def tile(self) -> tuple[int, ...]:
        """The shape of one number for each parent at 128 positions."""
        return self.parents, _LANES

    def tiles(self, letter: str) -> tuple[int, ...]:
        """The shape of a small matrix for each parent, or each sublane, at 128 positions."""
        rows, columns = matrix_shape(letter, self.sizes)
        return rows * columns, _SUBLANES if letter in "pP" else self.parents, _LANES

    def _shape(self, letter: str, *, result: bool = False) -> tuple[int, ...]:
        rows, columns = matrix_shape(letter, self.sizes)
        children, positions = self.sizes.children, self.sizes.positions
        if letter in KERNELS:  # as a result, a part from each block
            return (self.num_blocks,) * result + (children, self.parents, rows * columns)
        if letter == "c":
            return children, self.parents, positions
        if letter in "pP":
            return children, rows * columns, positions
        return self.num_blocks, rows * columns, self.parents, self.length

    def _spec(self, letter: str, *, result: bool = False) -> pl.BlockSpec:
        shape = self._shape(letter, result=result)
        if letter in KERNELS and result:
            return pl.BlockSpec((1, 1, *shape[2:]), lambda block, child: (block, child, 0, 0))
        if letter in KERNELS:
            return pl.BlockSpec((1, *shape[1:]), lambda block, child: (child, 0, 0))
        if letter in "cpP":
            return pl.BlockSpec((1, shape[1], self.length), lambda block, child: (child, 0, block))
        return pl.BlockSpec((None, *shape[1:]), lambda block, child: (block, 0, 0, 0))

    def _lay_out(self, letter: str, x: Array) -> Array:
        if letter in KERNELS:
            x = x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
        elif letter == "c":
            x = x.transpose(1, 2, 0)
        elif letter in "pP":
            shape = x.shape
            x = row_major(x.reshape(shape[0], -1)).T.reshape(shape[1], -1, shape[0])
        else:
            missing = self.num_blocks * self.length - x.shape[0]
            x = jnp.pad(x.reshape(*x.shape[:2], -1), [(0, missing), (0, 0), (0, 0)])
            x = x.reshape(self.num_blocks, self.length, *x.shape[1:]).transpose(0, 3, 2, 1)
        shape = self._shape(letter)
        return jnp.pad(x, [(0, full - size) for full, size in zip(shape, x.shape, strict=True)])

    def _restore(self, letter: str, x: Array) -> Array:
        """The inverse of `_lay_out`, with all batch axes."""
        positions, parents = self.sizes.positions, self.sizes.parents
        rows, columns = matrix_shape(letter, self.sizes)
        if letter in KERNELS:
            x = jnp.sum(x, axis=0)[:, :parents]
            return x.reshape(*x.shape[:2], rows, columns).transpose(0, 2, 1, 3)
        if letter == "c":
            x = x[:, :parents].transpose(2, 0, 1)
        elif letter in "pP":
            x = row_major(x.reshape(-1, positions).T).reshape(positions, -1, rows, columns)
        else:
            x = x[:, :, :parents].transpose(0, 3, 2, 1)
            extents = (parents,) if letter == "t" else (parents, rows, columns)
            x = x.reshape(-1, *extents)[:positions]
        return x.reshape(*self.sizes.batch, *x.shape[1:])


class _Child(NamedTuple):
    """One child: its operands, and its kernels spread over the lanes."""

    plan: _Plan
    first: Array  # position of the block
    operands: dict[str, Any]
    spread: dict[str, Any]
    sums_positions: bool

    @classmethod
    def of(
        cls,
        plan: _Plan,
        operands: dict[str, Any],
        spread: dict[str, Any],
        *,
        sums_positions: bool = False,
    ) -> "_Child":
        """The child of this step of the grid.

        What lies beyond the last position spoils only sums over positions, as kernels need them.
        """
        child = cls(plan, pl.program_id(0) * plan.length, operands, spread, sums_positions)
        child.spread_kernels()
        return child

    def spread_kernels(self) -> None:
        """Copies each entry of the kernels, one per parent, to all lanes."""
        for letter, spread in self.spread.items():
            entries = self.operands[letter]
            for number in range(spread.shape[0]):
                column = entries[0, :, number : number + 1]
                spread[number] = jnp.broadcast_to(column, spread.shape[1:])

    def grid(self, letter: str, rows: Any, at: Any) -> Grid:
        """The entries of an operand for 8 parents at 128 positions."""
        height, columns = matrix_shape(letter, self.plan.sizes)
        numbers = range(height * columns)
        ref = self.operands[letter]
        if letter == "c":
            return [[self._clear(ref[0, rows, at], at)]]
        if letter in KERNELS:
            return grid([self.spread[letter][number, rows, :] for number in numbers], columns)
        if letter in "pP":
            tile = (_SUBLANES, _LANES)
            entries = [jnp.broadcast_to(ref[0, n : n + 1, at], tile) for n in numbers]
            return grid([self._clear(entry, at) for entry in entries], columns)
        return grid([ref[number, rows, at] for number in numbers], columns)

    def _clear(self, entry: Array, at: Any) -> Array:
        """`entry` with zeros beyond the last position, where memory holds anything."""
        plan = self.plan
        if not self.sums_positions or plan.sizes.positions == plan.length * plan.num_blocks:
            return entry
        position = self.first + at.start + lax.broadcasted_iota(jnp.int32, entry.shape, 1)
        return jnp.where(position < plan.sizes.positions, entry, 0)

    def votes(self, rows: Any, at: Any) -> Grid:
        """P_i W_ij."""
        return product(self.grid("p", rows, at), self.grid("k", rows, at))


def _softmax(plan: _Plan, logits: Array) -> Array:
    """softmax over the parents; padding of the last sublanes gets nothing."""
    if plan.parents != plan.sizes.parents:
        parent = lax.broadcasted_iota(jnp.int32, logits.shape, 0)
        logits = jnp.where(parent < plan.sizes.parents, logits, -jnp.inf)
    exponentials = jnp.exp(logits - jnp.max(logits, axis=0, keepdims=True))
    return exponentials * (1 / jnp.sum(exponentials, axis=0, keepdims=True))


def _store(ref: Any, entries: Sequence[Array], rows: Any) -> None:
    for number, entry in enumerate(entries):
        ref[number, rows, :] = entry


def _add(ref: Any, entries: Sequence[Array], *at: Any) -> None:
    """Adds `entries` to the first axis of `ref`, at the rest of its axes."""
    for number, entry in enumerate(entries):
        ref[(number, *at)] += entry


def _zero_at_first_child(plan: _Plan, ref: Any) -> None:
    def clear(at: Any) -> None:
        ref[:, :, at] = jnp.zeros((*ref.shape[:2], _LANES), ref.dtype)

    plan.each_block(clear, when=pl.program_id(1) == 0)


def _store_pose(out: Any, sums: Any, at: Any) -> None:
    """The sums over the sublanes, and so the parents, as the entries of a pose."""
    for number in range(sums.shape[0]):
        out[0, number : number + 1, at] = jnp.sum(sums[number], axis=0, keepdims=True)


def _store_kernel(out: Any, sums: Any) -> None:
    """The sums over the lanes, and so the positions, as the entries of a kernel."""
    for number in range(sums.shape[0]):
        out[0, 0, :, number : number + 1] = jnp.sum(sums[number], axis=1, keepdims=True)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
