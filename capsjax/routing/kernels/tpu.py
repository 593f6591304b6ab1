"""Pallas kernels for TPUs: positions on the lanes, parents on the sublanes.

A vector register holds one entry of a vote for 8 parents at 128 positions. For one child at a time
its votes are written out as multiplications and additions of such registers: entries of poses are
read with the same value for all sublanes, entries of the child's weights are spread over all lanes
once and then serve all positions of a block.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array

from capsjax.routing.kernels import mosaic, settings
from capsjax.routing.kernels.layout import row_major
from capsjax.routing.kernels.mosaic import LANES, Layout
from capsjax.routing.kernels.softmax import exponentials
from capsjax.routing.kernels.terms import (
    AXES,
    POSES,
    TERMS,
    WEIGHTS,
    Matrix,
    Operands,
    Terms,
    dot,
    matrix,
    matrix_shape,
)

_SUBLANES = 8
_UNROLLED = 4  # groups of 8 parents whose code is written out one after another


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """Returns the derivative of `scalar` by `wrt`."""

    def terms(**matrices: Matrix) -> Terms:
        yield wrt, TERMS[scalar, wrt](**matrices)

    return _one_pass(f"votes_{scalar}_{wrt}", operands, wrt, terms)[wrt]


def sums(coupling: Array, poses: Array, weights: Array) -> tuple[Array, Array]:
    """Returns Σ_i c_ij v_ij and Σ_i c_ij."""

    def terms(c: Matrix, p: Matrix, k: Matrix) -> Terms:
        yield "q", c * (p @ k)
        yield "t", c

    results = _one_pass("sums", {"c": coupling, "p": poses, "k": weights}, "qt", terms)
    return results["q"], results["t"]


def gradients(operands: Operands, *, wrt: str) -> Operands:
    """Returns the derivatives of E + Q by the operands in `wrt`; without q, those of Q.

    E + Q = Σ_ij c_ij (<v_ij, q_j> + <w_j, e_ij²>), with e = v − μ: the votes get
    c (q + 2 w e), and all else follows from e.
    """

    def terms(
        c: Matrix, p: Matrix, k: Matrix, m: Matrix, w: Matrix, q: Matrix | None = None
    ) -> Terms:
        error = p @ k - m
        weighted = w * error
        slope = weighted if q is None else weighted + q
        if "c" in wrt:
            yield "c", matrix([dot(slope, error)])  # with <e, q> in place of <v, q>
        to_votes = 2 * c * weighted if q is None else c * (slope + weighted)
        coupled = c * error
        if "m" in wrt:
            yield "m", coupled  # times −2 w
        if "w" in wrt:
            yield "w", coupled * error
        if "p" in wrt:
            yield "p", to_votes @ k.T
        if "k" in wrt:
            yield "k", p.T @ to_votes

    derivatives = _one_pass("gradients", operands, wrt, terms)
    if "m" in derivatives:
        derivatives["m"] *= -2 * operands["w"]
    if "c" in derivatives and "q" in operands:
        constant = jnp.sum(operands["m"] * operands["q"], axis=(-2, -1))
        derivatives["c"] += constant[..., None, :]
    return derivatives


def _one_pass(name: str, operands: Operands, results: str, terms: Callable[..., Terms]) -> Operands:
    """Sums `terms`, which are made of the operands' entries, over all children."""
    plan = _Plan(operands, results)

    def body(child: _Child) -> None:
        def tile(at: Any) -> None:
            def group(rows: Any) -> None:
                matrices = {letter: child.matrix(letter, rows, at) for letter in operands}
                for letter, entries in terms(**matrices):
                    child.add(letter, entries, rows, at)

            plan.each_group(group)

        child.each_tile(tile)

    return plan.for_each_child(name, body)


def attend(poses: Array, weights: Array, parents: Array) -> Array:
    """Returns the sums of one iteration of routing by agreement."""

    def terms(coupling: Matrix, votes: Matrix, _: Callable[[str], Matrix]) -> Terms:
        yield "q", coupling * votes

    operands = {"p": poses, "k": weights, "q": parents}
    return _two_passes("attend", operands, "q", terms)["q"]


def attend_backward(
    poses: Array, weights: Array, parents: Array, cotangent: Array
) -> dict[str, Array]:
    """Returns the cotangents of poses, weights and parents, for that of the sums.

    With g the cotangent of the sums, t_ij = r_ij (<v_ij, g_j> − Σ_j r_ij <v_ij, g_j>) is that of
    the logits, q_j gets Σ_i t_ij v_ij, and all else follows from that of the votes,
    r_ij g_j + t_ij q_j.
    """

    def terms(
        coupling: Matrix, rate: Matrix, votes: Matrix, read: Callable[[str], Matrix]
    ) -> Terms:
        yield "q", rate * votes
        to_votes = coupling * read("w") + rate * read("q")
        yield "p", to_votes @ read("k").T
        yield "k", read("p").T @ to_votes

    operands = {"p": poses, "k": weights, "q": parents, "w": cotangent}
    return _two_passes("attend_backward", operands, "pkq", terms)


def _two_passes(
    name: str, operands: Operands, results: str, terms: Callable[..., Terms]
) -> Operands:
    """Sums `terms`, of r, t (with a cotangent w), votes and what is read, over all children."""
    plan = _Plan(operands, results)

    # votes [A·Y, J', 128]; logits, later r, and rates, later t, [J', 128]
    def body(child: _Child, votes: Any, logits: Any, *rates: Any) -> None:
        def tile(at: Any) -> None:
            def agree(rows: Any) -> None:
                p, k = (child.matrix(letter, rows, at) for letter in "pk")
                voted = p @ k  # A×Y of [8, 128]
                for number, entry in enumerate(voted.flat):
                    votes[number, rows, :] = entry
                for letter, ref in zip("qw", (logits, *rates), strict=False):
                    ref[rows, :] = dot(voted, child.matrix(letter, rows, at))

            def add(rows: Any) -> None:
                shares = [matrix([ref[rows, :]]) for ref in (logits, *rates)]  # 1×1 of [8, 128]
                voted = matrix([votes[number, rows, :] for number in range(votes.shape[0])])
                read = partial(child.matrix, rows=rows, at=at)
                for letter, entries in terms(*shares, voted, read):
                    child.add(letter, entries, rows, at)

            plan.each_group(agree)
            coupling = plan.softmax(logits[...])
            for ref in rates:
                mean = jnp.sum(coupling * ref[...], axis=0, keepdims=True)  # [1, 128]
                ref[...] = coupling * (ref[...] - mean)
            logits[...] = coupling
            plan.each_group(add)

        child.each_tile(tile)

    numbers = [(plan.parents, LANES) for letter in operands if letter in "qw"]
    return plan.for_each_child(name, body, [plan.tiles("q"), *numbers])


class _Plan(mosaic.Plan):
    """How a problem is laid out and divided: one child in each step."""

    @property
    def parents(self) -> int:
        """J', a multiple of 8."""
        return pl.cdiv(self.sizes.parents, _SUBLANES) * _SUBLANES

    @property
    def steps(self) -> int:
        return self.sizes.children

    def layout(self, letter: str) -> Layout:
        """Returns how an operand lies.

        c and p, the large ones, are not padded: lanes beyond N are cleared when they are read.
        """
        (batch, children, parents, *_), positions = self.sizes, self.sizes.positions
        padded, length = self.parents, self.length
        rows, columns = matrix_shape(letter, self.sizes)
        entries = rows * columns

        match AXES[letter]:
            case "ij":  # [I, J', N]
                return Layout(
                    (children, padded, positions),
                    (1, padded, length),
                    lambda block, child: (child, 0, block),
                    arrange=lambda x: x.transpose(1, 2, 0),
                    restore=lambda x: x[:, :parents].transpose(2, 0, 1),
                )
            case "iax":  # [I, A·X, N]
                return Layout(
                    (children, entries, positions),
                    (1, entries, length),
                    lambda block, child: (child, 0, block),
                    arrange=lambda x: (
                        row_major(x.reshape(*batch, children * entries))
                        .reshape(positions, children * entries)
                        .T.reshape(children, entries, positions)
                    ),
                    restore=lambda x: row_major(
                        x.reshape(children * entries, positions).T.reshape(
                            *batch, children * entries
                        )
                    ).reshape(positions, children, rows, columns),
                )
            case "ixjy":  # [I, J', X·Y]
                return Layout(
                    (children, padded, entries),
                    (1, padded, entries),
                    lambda block, child: (child, 0, 0),
                    arrange=lambda x: x.transpose(0, 2, 1, 3).reshape(children, parents, entries),
                    restore=lambda x: (
                        x[:, :parents]
                        .reshape(children, parents, rows, columns)
                        .transpose(0, 2, 1, 3)
                    ),
                )
            case _:  # [A·Y, J', N']
                matrix = () if letter == "t" else (rows, columns)
                return Layout(
                    (entries, padded, self.num_blocks * length),
                    (entries, padded, length),
                    lambda block, child: (0, 0, block),
                    arrange=lambda x: x.reshape(positions, parents, entries).T,
                    restore=lambda x: x[:, :parents, :positions].T.reshape(
                        positions, parents, *matrix
                    ),
                )

    def for_each_child(
        self, name: str, body: Callable[..., None], scratch: Sequence[tuple[int, ...]] = ()
    ) -> Operands:
        """Runs `body` with every child at every block of positions, and with its scratch."""
        spread = [letter for letter in self.operands if letter in WEIGHTS]
        summed = [letter for letter in self.results if letter in POSES + WEIGHTS]

        def whole(*refs: Any) -> None:
            each = iter(refs)

            def named(letters: Iterable[str]) -> dict[str, Any]:
                return dict(zip(letters, each, strict=False))

            operands, results, spreads = named(self.operands), named(self.results), named(spread)
            own = [next(each) for _ in scratch]
            first = pl.program_id(0) * self.length
            child = _Child(self, first, operands, results, spreads, named(summed))
            child.spread_weights()
            body(child, *own)

        tiles = [*map(self.tiles, spread), *scratch, *map(self.tiles, summed)]
        return self.call(name, whole, tiles)

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

    def softmax(self, logits: Array) -> Array:
        """Normalises over the parents [J', 128]; padding of the last sublanes gets nothing."""
        if self.parents != self.sizes.parents:
            parent = lax.broadcasted_iota(jnp.int32, logits.shape, 0)
            logits = jnp.where(parent < self.sizes.parents, logits, -jnp.inf)
        largest = jnp.max(logits, axis=0, keepdims=True)
        values = exponentials(logits, largest, computed_once=not settings.current.interpret)
        return values * (1 / jnp.sum(values, axis=0, keepdims=True))

    def tiles(self, letter: str) -> tuple[int, ...]:
        """Returns the shape of a small matrix for each parent, or each sublane, at 128 places."""
        rows, columns = matrix_shape(letter, self.sizes)
        return rows * columns, _SUBLANES if letter in POSES else self.parents, LANES


class _Child(NamedTuple):
    """One child at one block of positions."""

    plan: _Plan
    first: Array  # position of the block
    operands: dict[str, Any]
    results: dict[str, Any]
    spread: dict[str, Any]  # weights on all lanes [X·Y, J', 128]
    sums: dict[str, Any]  # of results: over the parents [A·X, 8, 128], or positions [X·Y, J', 128]

    def spread_weights(self) -> None:
        """Copies each entry of the weights, one per parent, to all lanes."""
        for letter, spread in self.spread.items():
            entries = self.operands[letter]  # [1, J', X·Y]
            for number in range(spread.shape[0]):
                column = entries[0, :, number : number + 1]  # [J', 1]
                spread[number] = jnp.broadcast_to(column, spread.shape[1:])

    def each_tile(self, body: Callable[[Any], None]) -> None:
        """Calls `body`, which adds to results, with the lanes of each 128 positions."""
        poses = [letter for letter in self.results if letter in POSES]
        weights = [letter for letter in self.results if letter in WEIGHTS]
        for letter, out in self.results.items():
            if AXES[letter].startswith("j"):
                self.plan.zero_at_first_child(out)
        for letter in weights:
            self.sums[letter][...] = jnp.zeros_like(self.sums[letter])

        def tile(at: Any) -> None:
            for letter in poses:
                self.sums[letter][...] = jnp.zeros_like(self.sums[letter])
            body(at)
            for letter in poses:
                out, sums = self.results[letter], self.sums[letter]
                for number in range(sums.shape[0]):  # over the sublanes, and so the parents
                    total = jnp.sum(sums[number], axis=0, keepdims=True)  # [1, 128]
                    out[0, number : number + 1, at] = total

        self.plan.each_tile(tile)
        for letter in weights:
            out, sums = self.results[letter], self.sums[letter]
            for number in range(sums.shape[0]):  # over the lanes, and so the positions
                total = jnp.sum(sums[number], axis=1, keepdims=True)  # [J', 1]
                out[0, 0, :, number : number + 1] = total

    def matrix(self, letter: str, rows: Any, at: Any) -> Matrix:
        """Returns the entries of an operand for 8 parents at 128 positions, each [8, 128]."""
        height, columns = matrix_shape(letter, self.plan.sizes)
        numbers = range(height * columns)
        ref = self.operands[letter]
        match AXES[letter]:
            case "ij":
                entries = [self._clear(ref[0, rows, at], at)]
            case "iax":
                tile = (_SUBLANES, LANES)
                entries = [jnp.broadcast_to(ref[0, n : n + 1, at], tile) for n in numbers]
                entries = [self._clear(entry, at) for entry in entries]
            case "ixjy":
                entries = [self.spread[letter][n, rows, :] for n in numbers]
            case _:
                entries = [ref[n, rows, at] for n in numbers]
        return matrix(entries, columns)

    def add(self, letter: str, terms: Matrix, rows: Any, at: Any) -> None:
        """Adds the terms of a result for 8 parents at 128 positions, each [8, 128]."""
        out = self.results[letter]
        for number, term in enumerate(terms.flat):
            match AXES[letter]:
                case "ij":
                    out[0, rows, at] = term
                case "iax":
                    self.sums[letter][number] += term
                case "ixjy":
                    self.sums[letter][number, rows] += term
                case _:
                    out[number, rows, at] += term

    def _clear(self, entry: Array, at: Any) -> Array:
        """Sets `entry` to zero beyond the last position, where memory holds anything.

        Other values there spoil only the sums over positions, which weights need.
        """
        plan = self.plan
        whole = plan.sizes.positions == plan.length * plan.num_blocks
        if whole or not any(letter in WEIGHTS for letter in self.results):
            return entry
        position = self.first + at.start + lax.broadcasted_iota(jnp.int32, entry.shape, 1)
        return jnp.where(position < plan.sizes.positions, entry, 0)
