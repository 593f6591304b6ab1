"""A derivative in blocks of positions, to bound what is held at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from capsjax.routing.kernels.terms import AXES, KERNELS, Operands, Sizes


def flatten_batch(operands: Operands, sizes: Sizes) -> Operands:
    """The operands with one batch axis [N, …]; kernels have none."""
    return {
        letter: x
        if letter in KERNELS
        else x.reshape(sizes.positions, *x.shape[x.ndim - len(AXES[letter]) :])
        for letter, x in operands.items()
    }


def even_length(positions: int, most: int) -> int:
    """The length of the fewest blocks of at most `most` positions, as even as possible."""
    blocks = max(1, -(-positions // max(1, most)))
    return max(1, -(-positions // blocks))  # an empty batch has a block of nothing but padding


def sum_or_map(f: Callable[[Operands], Array], operands: Operands, wrt: str, length: int) -> Array:
    """`f` of all positions [N, …], or for kernels its sum, from one block of `length` at a time.

    Args:
      f: takes operands whose leading axis is a block and returns one such array, or for `wrt` a
        kernel the part of its derivative that the block adds.
      operands: arrays [N, …].
      wrt: the letter of the result.
      length: of a block; the last one is filled with zeros.
    """
    positions = next(iter(operands.values())).shape[0]
    blocks = jax.tree.map(lambda x: _split(x, length), operands)
    if wrt in KERNELS:
        zero = jax.eval_shape(f, jax.tree.map(_first, blocks))
        return lax.scan(
            lambda total, block: (total + f(block), None), jnp.zeros_like(zero), blocks
        )[0]
    out = lax.map(f, blocks)
    return out.reshape(out.shape[0] * out.shape[1], *out.shape[2:])[:positions]


def _first(blocks: Array) -> Array | jax.ShapeDtypeStruct:
    """The first block, or its shape where there is none."""
    if not blocks.shape[0]:
        return jax.ShapeDtypeStruct(blocks.shape[1:], blocks.dtype)
    return blocks[0]


def _split(x: Array, length: int) -> Array:
    """[blocks, length, …], padded with zeros."""
    count = -(-x.shape[0] // length)
    padded = jnp.pad(x, [(0, count * length - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
    return padded.reshape(count, length, *x.shape[1:])
