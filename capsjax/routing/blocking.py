"""A vmap that holds one block of its batch at a time, forward and backward."""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax import lax

from capsjax.routing._checks import check_count

Out = TypeVar("Out")


def blocked_vmap(f: Callable[..., Out], block_size: int) -> Callable[..., Out]:
    """`jax.vmap(f)` in blocks: temporary memory is that of `block_size` examples.

    Blocks run one after another in a loop. The backward pass recomputes each block from its inputs,
    so that only inputs and outputs are held for the whole batch. A last, smaller block takes what
    `block_size` does not divide.

    Args:
      f: a function of one example. Arguments are mapped over their leading axes; close over what is
        not mapped, such as kernels: gradients flow to it all the same.
      block_size: examples in a block, at least 1; see `choose_block_size`.

    Returns:
      A function with the arguments and results of `f` with one more leading axis.

    Raises:
      TypeError: `block_size` is no Python int.
      ValueError: `block_size` < 1, or (when called) leading axes that differ.
    """
    check_count("block_size", block_size)

    def mapped(*args: object) -> Out:
        leaves = jax.tree.leaves(args)
        lengths = {leaf.shape[0] for leaf in leaves if leaf.ndim}
        if len(lengths) != 1 or not all(leaf.ndim for leaf in leaves):
            raise ValueError(
                f"arguments of a blocked_vmap must share one leading axis to map over, got shapes "
                f"{[leaf.shape for leaf in leaves]}; close over arguments that are not mapped."
            )
        one_block = jax.checkpoint(lambda xs: f(*xs))
        return lax.map(one_block, args, batch_size=min(block_size, *lengths))

    return mapped


def choose_block_size(bytes_per_example: int, budget: int | None = None) -> int:
    """Examples whose temporaries fit in `budget` bytes together, at least 1.

    Args:
      bytes_per_example: what one example holds at a time: 4·I·J·D for dense votes in float32,
        about 4·I·J, the coupling, for LinearVotes of small matrix poses.
      budget: bytes for a block. None takes the default of the backend: on CPU 4 MiB, near which
        blocks were fastest in docs/benchmarks.md (they then stay in cache); 1 GiB on accelerators,
        where it only has to leave room and keep the device busy (not measured).

    Raises:
      TypeError: an argument is no Python int.
      ValueError: an argument < 1.
    """
    check_count("bytes_per_example", bytes_per_example)
    if budget is None:
        budget = 4 * 2**20 if jax.default_backend() == "cpu" else 2**30
    check_count("budget", budget)
    return max(1, budget // bytes_per_example)
