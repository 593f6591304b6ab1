"""Pallas kernels for NVIDIA GPUs, through Triton: a tile of positions and parents in registers.

A program of the grid holds, for some positions and all parents, one number of each vote entry per
thread or a few. Sums over the children (for parents) stay in registers while it goes through them
one by one; sums over the positions (for weights) while it goes through blocks of positions. All
operands stay in the order that they come in, and nothing is stored between reading them and
writing the result. Where there are too few programs to fill a GPU the loop is cut in parts, whose
sums XLA adds up: without atomic additions the bits are the same every time.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array

from capsjax.routing.kernels import blocks, settings
from capsjax.routing.kernels.adapter import kernel_result
from capsjax.routing.kernels.softmax import exponentials
from capsjax.routing.kernels.terms import (
    AXES,
    POSES,
    TERMS,
    WEIGHTS,
    Matrix,
    Operands,
    Sizes,
    Terms,
    dot,
    matrix,
    matrix_shape,
    shape_of,
    sizes_of,
)

_THREADS = 128
_PROGRAMS = 264  # two for each of the 132 multiprocessors of an H100
_LARGEST_TILE = 32  # entries of a gradient of weights that a program holds
# Products of a vote that a backward pass writes out, before it loops: a pass of Triton that follows
# each load and store through all of a program takes a time that grows with their third power.
_WRITTEN_OUT = 64


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """Returns the derivative of `scalar` by `wrt`."""
    name = f"votes_{scalar}_{wrt}"
    sizes = sizes_of(operands)
    if wrt not in WEIGHTS:
        held = [letter for letter in [*operands, wrt] if _is_parent(letter)]
        numbers = sum(_numbers(letter, sizes) for letter in held)

        def terms(tile: _Tile) -> Terms:
            yield wrt, TERMS[scalar, wrt](**{letter: tile.matrix(letter) for letter in operands})

        return _Plan.of(sizes, numbers).by_position(name, operands, wrt, terms)[wrt]

    # The rows of a gradient of weights are those of the poses that it is a product with.
    turned = "p" if scalar == "E" else "P"

    def rows_of_terms(tile: _Tile) -> Matrix:
        matrices = {a: tile.columns(a) if a == turned else tile.matrix(a) for a in operands}
        return TERMS[scalar, wrt](**matrices)

    plan = _Plan.of(sizes, min(_LARGEST_TILE, _numbers(wrt, sizes)))
    return plan.by_child(name, operands, wrt, rows_of_terms)


def attend(poses: Array, weights: Array, parents: Array) -> Array:
    """Returns the sums of one iteration of routing by agreement."""
    operands = {"p": poses, "k": weights, "q": parents}
    sizes = sizes_of(operands)

    def terms(tile: _Tile) -> Terms:
        votes = tile.votes()  # A×Y of [positions, parents]
        coupling = tile.softmax(dot(votes, tile.matrix("q")))  # [positions, parents]
        yield "q", matrix([coupling]) * votes

    plan = _Plan.of(sizes, 2 * _numbers("q", sizes))
    return plan.by_position("attend", operands, "q", terms)["q"]


def attend_backward(
    poses: Array, weights: Array, parents: Array, cotangent: Array
) -> dict[str, Array]:
    """Returns the cotangents of poses, weights and parents (see tpu.attend_backward).

    One kernel gives those of poses and parents, another that of the weights: each writes every
    number once.
    """
    operands = {"p": poses, "k": weights, "q": parents, "w": cotangent}
    sizes = sizes_of(operands)

    def to_votes(tile: _Tile) -> tuple[Matrix, Matrix, Matrix]:
        """Returns t, 1×1 of [positions, parents], the votes, and their cotangents r g + t q."""
        q, g = tile.matrix("q"), tile.matrix("w")
        votes = tile.votes(in_parts=True)  # A×Y of [positions, parents]
        coupling = tile.softmax(dot(votes, q))
        rate = dot(votes, g)
        rate = coupling * (rate - jnp.sum(coupling * rate, axis=1, keepdims=True))
        r, t = matrix([coupling]), matrix([rate])
        return t, votes, r * g + t * q

    def terms(tile: _Tile) -> Terms:
        rate, votes, cotangents = to_votes(tile)
        tile.store_poses("p", cotangents)
        yield "q", rate * votes

    def rows_of_terms(tile: _Tile) -> Matrix:
        _, _, cotangents = to_votes(tile)
        return tile.columns("p").T @ cotangents

    plan = _Plan.of(sizes, 3 * _numbers("q", sizes) + _numbers("k", sizes) // 2)
    gradients = plan.by_position("attend_backward", operands, "pq", terms)
    plan = _Plan.of(sizes, 3 * _numbers("q", sizes) + min(_LARGEST_TILE, _numbers("k", sizes)))
    return gradients | {"k": plan.by_child("attend_backward_kernel", operands, "k", rows_of_terms)}


def _numbers(letter: str, sizes: Sizes) -> int:
    """Returns the entries of the small matrices of an operand."""
    return math.prod(matrix_shape(letter, sizes))


def _is_parent(letter: str) -> bool:
    """Tells whether an operand belongs to parents alone: one that is read once, or summed."""
    return AXES[letter].startswith("j")


class _Plan(NamedTuple):
    """How a problem is divided."""

    sizes: Sizes
    positions: int  # of a tile, a power of two
    parents: int  # of a tile, the next power of two
    warps: int

    @classmethod
    def of(cls, sizes: Sizes, numbers: int) -> "_Plan":
        """Returns the plan for kernels that hold `numbers` numbers for each position and parent."""
        parents = pl.next_power_of_2(sizes.parents)
        # Half of the 255 registers of a thread are for what stays in them throughout the loop.
        each = next(n for n in (4, 2, 1) if n == 1 or n * numbers <= 128)
        positions = max(1, _THREADS * each // parents)
        return cls(sizes, positions, parents, max(4, min(16, parents // 32)))

    @property
    def tiles(self) -> int:
        """Blocks of positions."""
        return pl.cdiv(self.sizes.positions, self.positions)

    def by_position(
        self, name: str, operands: Operands, results: str, terms: Callable[["_Tile"], Terms]
    ) -> Operands:
        """Goes through the children of each block of positions.

        Terms of parents, of one result at most, are summed over children; others are stored.
        """
        sizes = self.sizes
        # Each part has its own sums. With eight children or more to each they stay few.
        parts = min(max(1, sizes.children // 8), pl.cdiv(_PROGRAMS, self.tiles))
        share = pl.cdiv(sizes.children, parts)
        summed = "".join(filter(_is_parent, results))

        def body(tile: _Tile) -> None:
            tile = tile._replace(block=pl.program_id(0))
            held = {letter: tile.matrix(letter) for letter in operands if _is_parent(letter)}
            tile = tile._replace(held=held)
            part = pl.program_id(1)

            def step(child: Array, totals: list[Array]) -> list[Array]:
                at_child = tile._replace(child=child)
                for letter, term in terms(at_child):
                    if letter == summed:
                        totals = [a + b for a, b in zip(totals, term.flat, strict=True)]
                    else:
                        at_child.store(letter, term.flat)
                return totals

            numbers = _numbers(summed, sizes) if summed else 0
            totals = self.over_part(part, share, sizes.children, step, numbers)
            if summed:
                tile.store(summed, totals, part)

        return self._call(name, body, (self.tiles, parts), operands, results, {summed: parts})

    def by_child(
        self, name: str, operands: Operands, wrt: str, rows_of_terms: Callable[["_Tile"], Matrix]
    ) -> Array:
        """Goes through blocks of positions for each child: the derivative by the weights `wrt`.

        `rows_of_terms` gives the terms of as many of its rows as a program holds.
        """
        sizes = self.sizes
        parts = min(self.tiles, pl.cdiv(2 * _PROGRAMS, sizes.children))
        share = pl.cdiv(self.tiles, parts)
        rows = self.rows_at_once

        def body(tile: _Tile) -> None:
            part = pl.program_id(1)
            tile = tile._replace(child=pl.program_id(0), first_row=pl.program_id(2) * rows)

            def step(block: Array, totals: list[Array]) -> list[Array]:
                added = rows_of_terms(tile._replace(block=block)).flat
                return [a + b for a, b in zip(totals, added, strict=True)]

            totals = self.over_part(part, share, self.tiles, step, rows * sizes.width)
            tile.store(wrt, totals, part)

        programs = (sizes.children, parts, sizes.columns // rows)
        return self._call(name, body, programs, operands, wrt, {wrt: parts})[wrt]

    def over_part(self, part: Any, share: int, end: int, step: Any, numbers: int) -> list[Array]:
        """Sums so many numbers by `step` over a part of a loop to `end`, each a `share` of it."""
        first, last = part * share, jnp.minimum((part + 1) * share, end)
        return lax.fori_loop(first, last, step, [self.zeros] * numbers)

    @property
    def zeros(self) -> Array:
        """Sums for a tile to start from."""
        return jnp.zeros((self.positions, self.parents), jnp.float32)

    @property
    def rows_at_once(self) -> int:
        """Rows of a gradient of weights that one program holds: a divisor of them."""
        return _largest_divisor(self.sizes.columns, _LARGEST_TILE // self.sizes.width)

    def _call(
        self,
        name: str,
        body: Callable[["_Tile"], None],
        programs: tuple[int, ...],
        operands: Operands,
        results: str,
        parts: dict[str, int],
    ) -> Operands:
        """Runs `body` in each program; of the results in `parts` there are several, to be added."""
        flattened = blocks.flatten_batch(operands, self.sizes)
        like = next(iter(flattened.values()))

        def full(letter: str) -> tuple[int, ...]:
            batch = () if letter in WEIGHTS else (self.sizes.positions,)
            several = (parts[letter],) if letter in parts else ()
            return (*several, *batch, *shape_of(letter, self.sizes))

        def whole(*refs: Any) -> None:
            each = iter(refs)
            named = [dict(zip(letters, each, strict=False)) for letters in (operands, results)]
            body(_Tile(self, *named))

        shapes = [full(letter) for letter in results]
        outputs = pl.pallas_call(
            whole,
            name=name,
            grid=programs,
            out_shape=[kernel_result((math.prod(shape),), like) for shape in shapes],
            compiler_params=plgpu.CompilerParams(num_warps=self.warps, num_stages=1),
            interpret=settings.current.interpret,
        )(*(x.reshape(-1) for x in flattened.values()))
        by_letter = {}
        for letter, x, shape in zip(results, outputs, shapes, strict=True):
            made = x.reshape(shape)
            by_letter[letter] = jnp.sum(made, axis=0) if letter in parts else made
        return blocks.restore_batch(by_letter, self.sizes)


class _Tile(NamedTuple):
    """One child at a block of positions, with all parents."""

    plan: _Plan
    arrays: dict[str, Any]
    outs: dict[str, Any]
    block: Any = None
    child: Any = None
    first_row: Any = 0  # of the weights whose gradient a program holds
    held: Operands | None = None  # what all children need, already read

    def matrix(self, letter: str) -> Matrix:
        """Returns an operand's entries: [positions, parents], 1 where they do not depend on it."""
        if self.held and letter in self.held:
            return self.held[letter]
        rows, columns = matrix_shape(letter, self.plan.sizes)
        return self._load(letter, range(rows), range(columns))

    def columns(self, letter: str) -> Matrix:
        """Returns the columns of poses that belong to the rows of weights from `first_row` on."""
        columns = [self.first_row + number for number in range(self.plan.rows_at_once)]
        return self._load(letter, range(self.plan.sizes.rows), columns)

    def _load(self, letter: str, rows: Sequence[Any], columns: Sequence[Any]) -> Matrix:
        offsets, mask, row_step = self._layout(letter)
        ref = self.arrays[letter]
        entries = [
            plgpu.load(ref.at[offsets + (row * row_step + column)], mask=mask, other=0.0)
            for row in rows
            for column in columns
        ]
        return matrix(entries, len(columns))

    def votes(self, *, in_parts: bool = False) -> Matrix:
        """Returns P_i W_ij, in a loop over columns of P_i if there are many."""
        if not in_parts:
            return self.matrix("p") @ self.matrix("k")
        rows, _, width = self.plan.sizes[3:]

        def add(columns: list[Array], totals: list[Array]) -> list[Array]:
            weights = self._load("k", columns, range(width))
            added = (self._load("p", range(rows), columns) @ weights).flat
            return [a + b for a, b in zip(totals, added, strict=True)]

        return matrix(self._over_columns(add, [self.plan.zeros] * (rows * width)), width)

    def store_poses(self, letter: str, cotangents: Matrix) -> None:
        """Writes the cotangents of poses, from those of votes."""

        def step(columns: list[Array], _: None) -> None:
            weights = self._load("k", columns, range(self.plan.sizes.width))
            self.store(letter, (cotangents @ weights.T).flat, columns=columns)

        self._over_columns(step, None)

    def _over_columns(self, step: Callable[[list[Array], Any], Any], start: Any) -> Any:
        """Goes through the columns of poses, some at a time."""
        sizes = self.plan.sizes
        some = _largest_divisor(sizes.columns, _WRITTEN_OUT // sizes.width)

        def body(part: Array, carry: Any) -> Any:
            return step([part * some + number for number in range(some)], carry)

        return lax.fori_loop(0, sizes.columns // some, body, start)

    def softmax(self, logits: Array) -> Array:
        """Normalises over the parents [positions, parents]; padding of the tile gets nothing."""
        _, parent = self._indices()
        if self.plan.parents != self.plan.sizes.parents:
            logits = jnp.where(parent < self.plan.sizes.parents, logits, -jnp.inf)
        largest = jnp.max(logits, axis=1, keepdims=True)
        values = exponentials(logits, largest, computed_once=not settings.current.interpret)
        return values / jnp.sum(values, axis=1, keepdims=True)

    def store(
        self, letter: str, entries: Iterable[Array], part: Any = None, columns: Any = None
    ) -> None:
        """Writes entries, summed over the parents for poses and over the positions for weights.

        A result that is summed further has several parts, one after the other. Of its matrices
        some `columns` can be given.
        """
        offsets, mask, row_step = self._layout(letter)
        if part is not None:
            sizes = self.plan.sizes
            size = math.prod(shape_of(letter, sizes))
            size *= 1 if letter in WEIGHTS else sizes.positions
            offsets = part * size + offsets
        columns = columns or range(matrix_shape(letter, self.plan.sizes)[1])
        for number, entry in enumerate(entries):
            if letter in POSES + WEIGHTS:
                entry = jnp.sum(entry, axis=1 if letter in POSES else 0, keepdims=True)
            row, place = divmod(number, len(columns))
            if letter in WEIGHTS:
                row = self.first_row + row
            offset = offsets + (row * row_step + columns[place])
            plgpu.store(self.outs[letter].at[offset], entry, mask=mask)

    def _indices(self) -> tuple[Array, Array]:
        """Returns the numbers of positions [positions, 1] and of parents [1, parents]."""
        plan = self.plan
        position = lax.broadcasted_iota(jnp.int32, (plan.positions, 1), 0)
        parent = lax.broadcasted_iota(jnp.int32, (1, plan.parents), 1)
        return position if self.block is None else self.block * plan.positions + position, parent

    def _layout(self, letter: str) -> tuple[Array, Array, int]:
        """Locates an operand's entry (0, 0) by position and parent, and says where there is one.

        Also how far the next row of the small matrices is. Operands are in row-major order.
        """
        sizes = self.plan.sizes
        position, parent = self._indices()
        extents = dict(zip("nijaxy", (sizes.positions, *sizes[1:]), strict=True))
        first, *rest = list(AXES[letter] if letter in WEIGHTS else "n" + AXES[letter])
        index = {"n": position, "i": self.child, "j": parent}
        inside = {"n": position < sizes.positions, "j": parent < sizes.parents}
        offsets = index[first]
        for axis in rest:
            offsets = offsets * extents[axis]
            if axis in index:
                offsets = offsets + index[axis]
        mask = functools.reduce(operator.and_, (inside[a] for a in [first, *rest] if a in inside))
        rows = next((number for number, axis in enumerate(rest) if axis in "ax"), len(rest))
        return offsets, mask, math.prod(extents[axis] for axis in rest[rows + 1 :])


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, max(1, most) + 1) if number % n == 0)
