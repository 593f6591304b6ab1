"""Pallas kernels for NVIDIA GPUs, through Triton: a tile of positions and parents in registers.

A program of the grid holds, for some positions and all parents, one number of each vote entry per
thread or a few. Sums over the children (for parents) stay in registers while it goes through them
one by one; sums over the positions (for kernels) while it goes through blocks of positions. All
operands stay in the order that they come in, and nothing is stored between reading them and
writing the result. Where there are too few programs to fill a GPU the loop is cut in parts, whose
sums XLA adds up: without atomic additions the bits are the same every time.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array

from capsjax.routing.kernels import blocks, einsum, forms, terms
from capsjax.routing.kernels.adapter import kernel_result
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
    operands_of,
    plus,
    product,
    shape_of,
    sizes_of,
    transposed,
)

_THREADS = 128
_PROGRAMS = 264  # two for each of the 132 multiprocessors of an H100


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """The derivative of `scalar` by `wrt`."""
    if (scalar, wrt) not in TERMS:
        return einsum.differentiate(operands, scalar=scalar, wrt=wrt)  # needed in forward mode only
    letters = operands_of(scalar, wrt)
    sizes = sizes_of(letters, list(operands.values()))
    sums = wrt in "qw"
    held = [letter for letter in letters if letter in "qwm" and wrt not in KERNELS]
    numbers = sum(_numbers(letter, sizes) for letter in [*held, *wrt * sums])
    plan = _Plan.of(sizes, numbers=min(32, _numbers(wrt, sizes)) if wrt in KERNELS else numbers)

    def entries(tile: "_Tile", kept: Operands) -> list[Array]:
        grids = {a: kept[a] if a in kept else tile.grid(a) for a in letters}
        return flat(TERMS[scalar, wrt](**grids))

    if wrt in KERNELS:
        # The rows of a kernel's gradient are those of the poses that it is a product with.
        turned = "p" if scalar == "E" else "P"

        def add(tile: _Tile, rows: Array, totals: list[Array]) -> list[Array]:
            found = entries(tile, {turned: tile.columns(turned, rows)})
            return [a + b for a, b in zip(totals, found, strict=True)]

        return plan.by_child(f"votes_{scalar}_{wrt}", operands, wrt, add)

    def begin(tile: _Tile) -> Operands:
        return {letter: tile.grid(letter) for letter in held}

    def step(tile: _Tile, kept: Operands, totals: list[Array]) -> list[Array]:
        found = entries(tile, kept)
        if sums:
            return [a + b for a, b in zip(totals, found, strict=True)]
        tile.store(wrt, found)
        return totals

    return plan.by_position(
        f"votes_{scalar}_{wrt}", operands, [] if sums else [wrt], wrt * sums, begin, step
    )[0]


def attend(poses: Array, kernel: Array, parents: Array) -> Array:
    """The sums of one iteration of routing by agreement."""
    operands = {"p": poses, "k": kernel, "q": parents}
    sizes = sizes_of(list(operands), list(operands.values()))
    plan = _Plan.of(sizes, numbers=2 * _numbers("q", sizes))

    def step(tile: _Tile, kept: Operands, totals: list[Array]) -> list[Array]:
        votes = tile.votes()
        coupling = tile.softmax(dot(votes, kept["q"]))
        return [a + coupling * b for a, b in zip(totals, flat(votes), strict=True)]

    begin = partial(_keep, "q")
    return plan.by_position("attend", operands, [], "q", begin, step)[0]


def attend_backward(
    poses: Array, kernel: Array, parents: Array, cotangent: Array
) -> dict[str, Array]:
    """The cotangents of poses, kernel and parents, for that of the sums (see tpu.attend_backward).

    One kernel gives those of poses and parents, another that of the kernel: each writes every
    number once.
    """
    operands = {"p": poses, "k": kernel, "q": parents, "w": cotangent}
    sizes = sizes_of(list(operands), list(operands.values()))

    def to_votes(tile: _Tile, q: Grid, g: Grid) -> tuple[Array, Grid, Grid]:
        votes = tile.votes()
        coupling = tile.softmax(dot(votes, q))
        rate = dot(votes, g)
        rate = coupling * (rate - jnp.sum(coupling * rate, axis=1, keepdims=True))
        return rate, votes, plus(terms.scale([[coupling]], g), terms.scale([[rate]], q))

    def step(tile: _Tile, kept: Operands, totals: list[Array]) -> list[Array]:
        rate, votes, cotangents = to_votes(tile, kept["q"], kept["w"])
        tile.store("p", flat(product(cotangents, transposed(tile.grid("k")))))
        return [a + rate * b for a, b in zip(totals, flat(votes), strict=True)]

    plan = _Plan.of(sizes, numbers=3 * _numbers("q", sizes) + _numbers("k", sizes) // 2)
    to_p, to_q = plan.by_position(
        "attend_backward", operands, ["p"], "q", partial(_keep, "qw"), step
    )

    def add(tile: _Tile, rows: Array, totals: list[Array]) -> list[Array]:
        _, _, cotangents = to_votes(tile, tile.grid("q"), tile.grid("w"))
        found = flat(product(transposed(tile.columns("p", rows)), cotangents))
        return [a + b for a, b in zip(totals, found, strict=True)]

    plan = _Plan.of(sizes, numbers=3 * _numbers("q", sizes) + min(32, _numbers("k", sizes)))
    to_k = plan.by_child("attend_backward_kernel", operands, "k", add)
    return {"p": to_p, "k": to_k, "q": to_q}


def _keep(letters: str, tile: "_Tile") -> Operands:
    return {letter: tile.grid(letter) for letter in letters}


def _numbers(letter: str, sizes: Sizes) -> int:
    rows, columns = matrix_shape(letter, sizes)
    return rows * columns


class _Plan(NamedTuple):
    """How a problem is divided."""

    sizes: Sizes
    positions: int  # of a tile, a power of two
    parents: int  # of a tile, the next power of two
    warps: int

    @classmethod
    def of(cls, sizes: Sizes, *, numbers: int) -> "_Plan":
        """The plan for kernels that hold `numbers` numbers for each position and parent."""
        parents = pl.next_power_of_2(sizes.parents)
        # Half of the 255 registers of a thread are for what stays in them throughout the loop.
        each = max(1, min(4, _floor_to_power_of_2(128 // max(1, numbers))))
        positions = max(1, _THREADS * each // parents)
        return cls(sizes, positions, parents, max(4, min(16, parents // 32)))

    @property
    def tiles(self) -> int:
        """Blocks of positions."""
        return pl.cdiv(self.sizes.positions, self.positions)

    def by_position(
        self,
        name: str,
        operands: Operands,
        stored: Sequence[str],
        summed: str,
        begin: Callable[["_Tile"], Operands],
        step: Callable[["_Tile", Operands, list[Array]], list[Array]],
    ) -> list[Array]:
        """Goes through the children of each block of positions.

        Args:
          name: of the kernel.
          operands: by letter.
          stored: letters of the results that `step` stores for each child.
          summed: the letter of the result that it adds up over the children, or "".
          begin: reads what all children need.
          step: from a tile, what `begin` read and the sums so far, to the sums.
        """
        sizes = self.sizes
        # Each part has its own sums. With eight children or more to each they stay few.
        parts = min(max(1, sizes.children // 8), pl.cdiv(_PROGRAMS, self.tiles))
        share = pl.cdiv(sizes.children, parts)

        def body(*refs: Any) -> None:
            arrays = dict(zip(operands, refs, strict=False))
            outs = dict(zip([*stored, *summed], refs[len(operands) :], strict=True))
            tile = _Tile(self, pl.program_id(0), None, arrays, outs)
            kept = begin(tile)
            part = pl.program_id(1)
            zeros = [jnp.zeros((self.positions, self.parents), jnp.float32)] * (
                _numbers(summed, sizes) if summed else 0
            )
            totals = lax.fori_loop(
                part * share,
                jnp.minimum((part + 1) * share, sizes.children),
                lambda child, totals: step(tile._replace(child=child), kept, totals),
                zeros,
            )
            if summed:
                tile.store_sums(summed, totals, part)

        results = self._call(name, body, (self.tiles, parts), operands, stored, summed, parts)
        return results

    def by_child(
        self,
        name: str,
        operands: Operands,
        wrt: str,
        add: Callable[["_Tile", Array, list[Array]], list[Array]],
    ) -> Array:
        """Goes through blocks of positions for each child: the derivative by the kernel `wrt`.

        `add` takes a tile, the first of some rows of the kernel, and the sums for them so far.
        """
        sizes = self.sizes
        parts = min(self.tiles, pl.cdiv(2 * _PROGRAMS, sizes.children))
        share = pl.cdiv(self.tiles, parts)
        rows = self.rows_at_once

        def body(*refs: Any) -> None:
            arrays = dict(zip(operands, refs, strict=False))
            tile = _Tile(self, None, pl.program_id(0), arrays, {wrt: refs[-1]})
            part, first = pl.program_id(1), pl.program_id(2) * rows
            zero = jnp.zeros((self.positions, self.parents), jnp.float32)
            totals = lax.fori_loop(
                part * share,
                jnp.minimum((part + 1) * share, self.tiles),
                lambda block, totals: add(tile._replace(block=block), first, totals),
                [zero] * (rows * sizes.width),
            )
            tile.store_sums(wrt, totals, part, first)

        programs = (sizes.children, parts, sizes.columns // rows)
        return self._call(name, body, programs, operands, [], wrt, parts)[0]

    @property
    def rows_at_once(self) -> int:
        """Rows of a kernel whose gradient one program holds: a divisor, up to 32 numbers."""
        most = max(1, 32 // self.sizes.width)
        return max(n for n in range(1, most + 1) if self.sizes.columns % n == 0)

    def _call(
        self,
        name: str,
        body: Callable[..., None],
        programs: tuple[int, ...],
        operands: Operands,
        stored: Sequence[str],
        summed: str,
        parts: int,
    ) -> list[Array]:
        sizes = self.sizes
        flattened = blocks.flatten_batch(operands, sizes)
        like = next(iter(flattened.values()))

        def full(letter: str) -> tuple[int, ...]:
            lead = () if letter in KERNELS else (sizes.positions,)
            return (*lead, *shape_of(letter, sizes))

        shapes = [full(letter) for letter in stored]
        shapes += [(parts, *full(letter)) for letter in summed]
        outputs = pl.pallas_call(
            body,
            name=name,
            grid=programs,
            out_shape=[kernel_result((math.prod(shape),), like) for shape in shapes],
            compiler_params=plgpu.CompilerParams(num_warps=self.warps, num_stages=1),
            interpret=forms.interpret_mode(),
        )(*(x.reshape(-1) for x in flattened.values()))
        results = [x.reshape(shape) for x, shape in zip(outputs, shapes, strict=True)]
        results[len(stored) :] = [jnp.sum(x, axis=0) for x in results[len(stored) :]]
        return [
            x if letter in KERNELS else x.reshape(*sizes.batch, *x.shape[1:])
            for letter, x in zip([*stored, *summed], results, strict=True)
        ]


class _Tile(NamedTuple):
    """One child at a block of positions, with all parents."""

    plan: _Plan
    block: Any
    child: Any
    arrays: dict[str, Any]
    outs: dict[str, Any]

    def grid(self, letter: str) -> Grid:
        """The entries of an operand: [positions, parents], or 1 where they do not depend on one."""
        offsets, mask = self._place(letter)
        rows, columns = matrix_shape(letter, self.plan.sizes)
        ref = self.arrays[letter]
        entries = [
            plgpu.load(ref.at[offsets + self._within(letter, row, column)], mask=mask, other=0.0)
            for row in range(rows)
            for column in range(columns)
        ]
        return grid(entries, columns)

    def columns(self, letter: str, first: Array) -> Grid:
        """The columns of a pose that belong to the rows of a kernel from `first` on."""
        offsets, mask = self._place(letter)
        sizes, ref = self.plan.sizes, self.arrays[letter]
        return [
            [
                plgpu.load(
                    ref.at[offsets + row * sizes.columns + first + column], mask=mask, other=0.0
                )
                for column in range(self.plan.rows_at_once)
            ]
            for row in range(sizes.rows)
        ]

    def votes(self) -> Grid:
        """P_i W_ij."""
        return product(self.grid("p"), self.grid("k"))

    def softmax(self, logits: Array) -> Array:
        """softmax over the parents; padding of the tile gets nothing."""
        _, parent = self._indices()
        if self.plan.parents != self.plan.sizes.parents:
            logits = jnp.where(parent < self.plan.sizes.parents, logits, -jnp.inf)
        exponentials = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
        return exponentials / jnp.sum(exponentials, axis=1, keepdims=True)

    def store(self, letter: str, entries: Sequence[Array]) -> None:
        """Writes a coupling, or sums over the parents as the entries of a pose."""
        offsets, mask = self._place(letter)
        _, columns = matrix_shape(letter, self.plan.sizes)
        for number, entry in enumerate(entries):
            if letter in "pP":
                entry = jnp.sum(entry, axis=1, keepdims=True)
            at = offsets + self._within(letter, *divmod(number, columns))
            plgpu.store(self.outs[letter].at[at], entry, mask=mask)

    def store_sums(self, letter: str, totals: Sequence[Array], part: Any, first: Any = 0) -> None:
        """Writes one part of the sums over children, or over positions as entries of a kernel."""
        offsets, mask = self._place(letter)
        sizes = self.plan.sizes
        size = math.prod(shape_of(letter, sizes))
        size *= 1 if letter in KERNELS else sizes.positions
        _, columns = matrix_shape(letter, sizes)
        for number, total in enumerate(totals):
            if letter in KERNELS:
                total = jnp.sum(total, axis=0, keepdims=True)
            row, column = divmod(number, columns)
            at = part * size + offsets + self._within(letter, first + row, column)
            plgpu.store(self.outs[letter].at[at], total, mask=mask)

    def _indices(self) -> tuple[Array, Array]:
        plan = self.plan
        position = lax.broadcasted_iota(jnp.int32, (plan.positions, 1), 0)
        parent = lax.broadcasted_iota(jnp.int32, (1, plan.parents), 1)
        return position if self.block is None else self.block * plan.positions + position, parent

    def _place(self, letter: str) -> tuple[Array, Array]:
        """Offsets of an operand's entry (0, 0) by position and parent, and where there is one."""
        sizes = self.plan.sizes
        position, parent = self._indices()
        inside, voted = position < sizes.positions, parent < sizes.parents
        if letter in KERNELS:
            parents = self.child * sizes.columns * sizes.parents + parent
            return parents * sizes.width, voted
        if letter == "c":
            children = position * sizes.children + self.child
            return children * sizes.parents + parent, inside & voted
        if letter in "pP":
            children = position * sizes.children + self.child
            return children * sizes.rows * sizes.columns, inside
        parents = position * sizes.parents + parent
        return parents * sizes.rows * sizes.width, inside & voted

    def _within(self, letter: str, row: Any, column: int) -> Any:
        """Returns the distance of an operand's entry (row, column) from the entry (0, 0)."""
        sizes = self.plan.sizes
        if letter in KERNELS:  # [I, X, J, Y]
            return row * sizes.parents * sizes.width + column
        return row * matrix_shape(letter, sizes)[1] + column


def _floor_to_power_of_2(number: int) -> int:
    return 1 << max(0, number.bit_length() - 1)
