"""A function of a batch in blocks, to bound memory."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

Out = TypeVar("Out")


def in_blocks(f: Callable[[PyTree], Out], batch: PyTree, block_size: int | None) -> Out:
    """`f(batch)`, for `block_size` examples at a time, one block after another.

    The backward pass recomputes each block, so that for the whole batch only what goes in and what
    comes out is held. Unlike `routing.blocked_vmap`, `f` sees a block as a batch: the gradient of
    what it closes over is summed over the block in one contraction, not example by example.

    Args:
      f: a function of arrays whose leading axes are one batch, that treats examples apart.
      batch: its argument.
      block_size: examples in a block; a last, smaller one takes what it does not divide. None, or
        as many as there are: all, with nothing recomputed.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    if block_size is None or block_size >= size:
        return f(batch)
    g = jax.checkpoint(f)
    whole = size // block_size * block_size

    def split(x: jax.Array) -> jax.Array:
        return x[:whole].reshape(-1, block_size, *x.shape[1:])

    parts = []
    if whole:
        blocks = lax.map(g, jax.tree.map(split, batch))
        parts.append(jax.tree.map(lambda y: y.reshape(whole, *y.shape[2:]), blocks))
    if whole < size:
        parts.append(g(jax.tree.map(lambda x: x[whole:], batch)))
    return jax.tree.map(lambda *ys: jnp.concatenate(ys), *parts)
