"""A batch in parts, forward and backward: in blocks, one after another, or over devices."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, PyTree

from capsjax.routing._checks import check_counts
from capsjax.routing.kernels import adapter

Out = TypeVar("Out")


def in_blocks(f: Callable[[PyTree], Out], batch: PyTree, block_size: int | None) -> Out:
    """Calls `f` on `block_size` examples at a time: temporary memory is that of one block.

    Blocks run one after another in a loop. The backward pass recomputes each block, so that only
    inputs and outputs are held for the whole batch. `f` sees a block as a batch: the gradient of
    what it closes over, such as kernels, is summed over the block in one contraction.

    Args:
      f: a function of arrays with one leading batch axis; it must treat examples independently.
      batch: its argument, arrays [n, …].
      block_size: examples in a block, see `choose_block_size`; the last block may be smaller. On a
        mesh of explicit axes that divide the batch it counts the examples on each device. None, or
        at least n: all at once, with nothing recomputed; likewise if n is symbolic, in a program
        exported for batches of any size.
    """
    size = _common_length(batch)
    if block_size is not None:
        check_counts(block_size=block_size)
    if block_size is None or not isinstance(size, int):
        return f(batch)
    parts = max(map(adapter.parts, jax.tree.leaves(batch)))
    each = size // parts
    if block_size >= each:
        return f(batch)
    g = jax.checkpoint(f)
    count = each // block_size
    whole = count * block_size
    by_device = jax.tree.map(lambda x: jnp.reshape(x, (parts, each, *x.shape[1:])), batch)

    def to_blocks(x: Array) -> Array:
        """[parts, each, …] as [count, parts · block_size, …], without what is left over."""
        x = x[:, :whole].reshape(parts, count, block_size, *x.shape[2:]).swapaxes(0, 1)
        return x.reshape(count, parts * block_size, *x.shape[3:])

    def from_blocks(y: Array) -> Array:
        """The inverse, [parts, whole, …]."""
        y = y.reshape(count, parts, block_size, *y.shape[2:]).swapaxes(0, 1)
        return y.reshape(parts, whole, *y.shape[3:])

    def checked(block: PyTree) -> Out:
        out, length = g(block), _common_length(block)
        for y in jax.tree.leaves(out):
            if jnp.shape(y)[:1] != (length,):
                raise ValueError(
                    f"f must return arrays [n, …] for a batch of n examples, got shape "
                    f"{jnp.shape(y)} for {length}; sum or average over the batch outside."
                )
        return out

    done = [jax.tree.map(from_blocks, lax.map(checked, jax.tree.map(to_blocks, by_device)))]
    if left := each - whole:
        rest = jax.tree.map(lambda x: x[:, whole:].reshape(parts * left, *x.shape[2:]), by_device)
        last = checked(rest)
        done.append(jax.tree.map(lambda y: y.reshape(parts, left, *y.shape[1:]), last))
    return jax.tree.map(
        lambda *ys: jnp.concatenate(ys, axis=1).reshape(size, *ys[0].shape[2:]), *done
    )


def over_devices(
    f: Callable[..., Out], axis_names: str | tuple[str, ...], *, mesh: Mesh | None = None
) -> Callable[..., Out]:
    """Divides the batch of `f(whole, *batch)` over a mesh: each device computes its own part.

    This is a `jax.shard_map` of `f` over the whole mesh, inside which routing can use its kernels.
    Use it for `jit` on a mesh of automatic axes, where XLA divides a program after tracing and
    cannot divide a kernel. On explicit axes, which `jax.make_mesh` gives, it is not needed.

    Args:
      f: a function, such as a procedure or a layer, that treats examples independently. Its first
        argument, such as kernels or a module, is replicated (gradients are summed over devices);
        the leading axis of all other arguments, and of its results, is the batch.
      axis_names: the axes of the mesh that divide the batch; over the others it is replicated.
      mesh: the mesh; None for that of `jax.set_mesh`.
    """
    spec = PartitionSpec(axis_names)

    def mapped(whole: PyTree, *batch: PyTree) -> Out:
        in_specs = (PartitionSpec(), *[spec] * len(batch))
        return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=spec)(whole, *batch)

    return mapped


def blocked_vmap(f: Callable[..., Out], block_size: int) -> Callable[..., Out]:
    """Does `jax.vmap(f)` with one block of the batch in memory at a time, forward and backward.

    See `in_blocks`, which is faster if `f` can take a batch itself.

    Args:
      f: a function of one example. All arguments are mapped over their leading axes; close over
        what is not mapped, such as kernels: gradients still flow to it.
      block_size: examples in a block, at least 1; see `choose_block_size`.
    """
    check_counts(block_size=block_size)
    mapped = jax.vmap(f)
    return lambda *args: in_blocks(lambda block: mapped(*block), args, block_size)


def choose_block_size(
    bytes_per_example: int, *, shared_bytes: int = 0, budget: int = 4 * 2**20
) -> int:
    """Returns how many examples' temporaries fit in `budget` bytes together, at least 1.

    Args:
      bytes_per_example: what one example holds at a time: 4·I·J·D for dense votes in float32,
        4·I·J·D_in for LinearVotes of vectors, about 4·I·J, the coupling, for LinearVotes of small
        matrix poses.
      shared_bytes: what every block reads again, such as the kernel. It raises a smaller budget to
        this: a block that holds less than it reads would wait for memory.
      budget: bytes for a block. The default is for CPUs, where blocks of about 4 MiB were fastest
        (docs/benchmarks.md): they stay in cache. On an accelerator blocks only bound memory: route
        the whole batch if it fits, otherwise pass the bytes that the device can spare.
    """
    check_counts(bytes_per_example=bytes_per_example, budget=budget)
    check_counts(0, shared_bytes=shared_bytes)
    return max(1, max(budget, shared_bytes) // bytes_per_example)


def _common_length(batch: PyTree) -> Any:  # symbolic in a program exported for any batch
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(batch)]
    lengths = {shape[0] for shape in shapes if shape}
    if len(lengths) != 1 or not all(shapes):
        raise ValueError(
            f"the arrays of a batch must share one leading axis, got shapes {shapes}; close over "
            "what is not mapped."
        )
    return lengths.pop()
