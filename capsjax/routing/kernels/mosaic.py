"""What the kernels for TPUs share: blocks of positions, how operands lie, and the call.

The grid goes over blocks of positions and, within one, over the children; sums over the children
stay on the chip meanwhile. Positions lie on the lanes, 128 to a register.
"""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from capsjax.routing.kernels import blocks, settings
from capsjax.routing.kernels.adapter import kernel_result
from capsjax.routing.kernels.terms import WEIGHTS, Operands, sizes_of

LANES = 128
BLOCK_BYTES = 24 * 2**20  # on the chip, for operands and results of one step of the grid
_SPARE_BYTES = 8 * 2**20  # for the compiler


class Layout(NamedTuple):
    """How an operand or a result lies in memory."""

    shape: tuple[int, ...]  # with padding at the ends
    block: tuple[int | None, ...]  # what one step of the grid sees
    place: Callable[[Any, Any], tuple[Any, ...]]  # from the numbers of block and child
    arrange: Callable[[Array], Array]  # from [N, …] or weights [I, X, J, Y], without padding
    restore: Callable[[Array], Array]  # the inverse, from a padded array

    def put(self, x: Array) -> Array:
        """Returns `x` in this order, padded with zeros."""
        x = self.arrange(x)
        pads = [(0, full - size) for full, size in zip(self.shape, x.shape, strict=True)]
        return jnp.pad(x, pads)

    def in_parts(self, parts: int) -> "Layout":
        """Returns the layout of a sum over positions: each block of them gives a part."""
        return Layout(
            (parts, *self.shape),
            (1, *self.block),
            lambda block, child: (block, *self.place(block, child)),
            self.arrange,
            lambda x: self.restore(jnp.sum(x, axis=0)),
        )


class Plan(abc.ABC):
    """How a problem is laid out and divided: blocks of `length` positions, a multiple of 128."""

    def __init__(self, operands: Operands, results: str):
        self.operands, self.results = operands, results
        self.sizes = sizes_of(operands)
        self.length = self.num_blocks = 1
        by_position = [letter for letter in [*operands, *results] if letter not in WEIGHTS]
        numbers = sum(math.prod(filter(None, self.layout(letter).block)) for letter in by_position)
        tiles = pl.cdiv(self.sizes.positions, LANES)
        # Every buffer is there twice: one is computed on while the other is filled.
        length = blocks.even_length(tiles, BLOCK_BYTES // (2 * 4 * numbers * LANES))
        self.length, self.num_blocks = length * LANES, pl.cdiv(tiles, length)

    @property
    @abc.abstractmethod
    def steps(self) -> int:
        """How many steps the grid has within a block."""

    @abc.abstractmethod
    def layout(self, letter: str) -> Layout:
        """Returns how the operand with this letter lies."""

    def call(
        self,
        name: str,
        body: Callable[..., None],
        scratch: Sequence[tuple[int, ...]],
        spare_bytes: int = 0,
    ) -> Operands:
        """Runs `body` on references to operands, results and scratch in each step of the grid."""
        flattened = blocks.flatten_batch(self.operands, self.sizes)
        like = next(iter(flattened.values()))
        inputs = [self.layout(letter) for letter in flattened]
        layouts = [(letter, self.layout(letter)) for letter in self.results]
        parts = self.num_blocks
        outputs = [x.in_parts(parts) if letter in WEIGHTS else x for letter, x in layouts]
        scratch_bytes = 4 * sum(math.prod(shape) for shape in scratch)
        computed = pl.pallas_call(
            body,
            name=name,
            grid=(self.num_blocks, self.steps),
            in_specs=[pl.BlockSpec(layout.block, layout.place) for layout in inputs],
            out_specs=[pl.BlockSpec(layout.block, layout.place) for layout in outputs],
            out_shape=[kernel_result(layout.shape, like) for layout in outputs],
            scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=BLOCK_BYTES + _SPARE_BYTES + scratch_bytes + spare_bytes,
            ),
            interpret=settings.current.interpret,
        )(*(layout.put(x) for layout, x in zip(inputs, flattened.values(), strict=True)))
        restored = [layout.restore(x) for layout, x in zip(outputs, computed, strict=True)]
        return blocks.restore_batch(dict(zip(self.results, restored, strict=True)), self.sizes)

    def each_tile(self, body: Callable[[Any], None], when: Any = True) -> None:
        """Calls `body` with the lanes of each 128 positions of a block, if `when` holds."""

        def step(number: Array, _: None) -> None:
            body(pl.ds(pl.multiple_of(number * LANES, LANES), LANES))

        number = self.length // LANES
        lax.fori_loop(0, number if when is True else jnp.where(when, number, 0), step, None)

    def zero_at_first_child(self, ref: Any) -> None:
        """Clears sums over the children […, …, M]."""

        def clear(at: Any) -> None:
            ref[:, :, at] = jnp.zeros((*ref.shape[:2], LANES), ref.dtype)

        self.each_tile(clear, when=pl.program_id(1) == 0)
