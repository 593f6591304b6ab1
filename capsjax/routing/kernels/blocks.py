"""A derivative in blocks of positions, to bound what is held at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from capsjax.routing.kernels import adapter
from capsjax.routing.kernels.terms import AXES, WEIGHTS, Operands, Sizes


def flatten_batch(operands: Operands, sizes: Sizes) -> Operands:
    """Returns the operands with one batch axis [N, …]; weights have none."""
    return {
        letter: x
        if letter in WEIGHTS
        else x.reshape(sizes.positions, *x.shape[x.ndim - len(AXES[letter]) :])
        for letter, x in operands.items()
    }


def restore_batch(results: Operands, sizes: Sizes) -> Operands:
    """Inverts `flatten_batch`."""
    return {
        letter: x if letter in WEIGHTS else x.reshape(*sizes.batch, *x.shape[1:])
        for letter, x in results.items()
    }


def even_length(positions: int, most: int) -> int:
    """Returns the length of the fewest blocks of at most `most` positions, as even as possible."""
    blocks = max(1, -(-positions // max(1, most)))
    return max(1, -(-positions // blocks))  # an empty batch has a block of nothing but padding


def sum_or_map(f: Callable[[Operands], Array], operands: Operands, wrt: str, most: int) -> Array:
    """Calls `f` on one block of positions [N, …] at a time; joins the results, sums weights'.

    Args:
      f: takes operands whose leading axis is a block and returns one such array, or where `wrt`
        are weights the part of their derivative that the block adds.
      operands: arrays [N, …].
      wrt: the letter of the result.
      most: how many positions a block has at most; the last one is filled with zeros.
    """
    positions = next(iter(operands.values())).shape[0]
    length = even_length(positions, most)
    blocks = jax.tree.map(lambda x: _split(x, length), operands)
    if wrt in WEIGHTS:
        zero = adapter.zeros(jax.eval_shape(f, jax.tree.map(_first, blocks)), blocks)
        return lax.scan(lambda total, block: (total + f(block), None), zero, blocks)[0]
    out = lax.map(f, blocks)
    return out.reshape(out.shape[0] * length, *out.shape[2:])[:positions]


def _first(blocks: Array) -> Array | jax.ShapeDtypeStruct:
    """Returns the first block, or its shape where there is none."""
    if not blocks.shape[0]:
        return jax.ShapeDtypeStruct(blocks.shape[1:], blocks.dtype)
    return blocks[0]


def _split(x: Array, length: int) -> Array:
    """Cuts [N, …] into [blocks, length, …], padded with zeros."""
    count = -(-x.shape[0] // length)
    padding = count * length - x.shape[0]
    return jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1)).reshape(count, length, *x.shape[1:])
