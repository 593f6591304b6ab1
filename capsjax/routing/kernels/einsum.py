"""Any poses on any platform: matrix products over blocks of positions."""

import math

import jax.numpy as jnp
from jaxtyping import Array

from capsjax.routing.kernels import blocks
from capsjax.routing.kernels.terms import AXES, LINEAR, WEIGHTS, Operands, Sizes, shape_of, sizes_of

# The bytes of a block's largest array, [b, I, J, A, X or Y].
_BLOCK_BYTES = 64 * 2**20
_ON_CHIP = 2**23  # numbers, a quarter of what a v5e's chip holds: larger copies would leave it


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """Differentiates `scalar` by `wrt`, in blocks of positions that hold 64 MiB at most."""
    sizes = sizes_of(operands)
    flat = blocks.flatten_batch(operands, sizes)
    weights = {letter: flat.pop(letter) for letter in WEIGHTS if letter in flat}

    def one_block(block: Operands) -> Array:
        return _product(scalar, wrt, block | weights)

    most = _BLOCK_BYTES // max(1, _bytes(scalar, sizes))
    # A program exported for batches of any size cannot have blocks.
    if not isinstance(sizes.positions, int) or sizes.positions <= most:
        out = one_block(flat)
    else:
        out = blocks.sum_or_map(one_block, flat, wrt, most)
    return out if wrt in WEIGHTS else out.reshape(*sizes.batch, *out.shape[1:])


def uniform(operands: Operands, *, wrt: str, platform: str) -> Array:
    """Differentiates U by `wrt`: one matrix product.

    On a TPU few matrices are transposed to [I, A, X, N] for it, in which a kernel wants them too:
    XLA would move their rows apart instead, in copies of its own.
    """
    if wrt == "p":
        return jnp.einsum("ixjy,...jay->...iax", operands["k"], operands["q"])
    sizes, p = sizes_of(operands), operands["p"]
    n, pose, parents = sizes.positions, shape_of("p", sizes), shape_of("q", sizes)
    few = isinstance(n, int) and n * math.prod(pose) <= _ON_CHIP
    if platform == "tpu" and sizes.rows > 1 and few:
        p = p.reshape(n, math.prod(pose)).T.reshape(*pose, n)
        if wrt == "k":
            return jnp.einsum("iaxn,njay->ixjy", p, operands["q"].reshape(n, *parents))
        sums = jnp.einsum("iaxn,ixjy->njay", p, operands["k"])
        return sums.reshape(*sizes.batch, *parents)
    if wrt == "q":
        return jnp.einsum("...iax,ixjy->...jay", p, operands["k"])
    over = (*range(len(sizes.batch)), -2)  # in this order the bits are those of autodiff
    return jnp.tensordot(operands["q"], p, (over, over)).transpose(2, 3, 0, 1)


def _bytes(scalar: str, sizes: Sizes) -> int:
    """Returns a position's bytes: of pulled or weighted poses for E, of votes for Q and G."""
    inner = min(sizes.columns, sizes.width) if scalar == "E" else sizes.width
    return 4 * sizes.children * sizes.parents * sizes.rows * inner


def _product(scalar: str, wrt: str, operands: Operands) -> Array:
    """Multiplies the other factors of `scalar`, and sums over all axes but those of `wrt`."""
    axes = {letter: of if letter in WEIGHTS else f"n{of}" for letter, of in AXES.items()}
    factors = {letter: operands[letter] for letter in LINEAR[scalar] if letter != wrt}
    if scalar in "QG":
        error = jnp.einsum("niax,ixjy->nijay", operands["p"], operands["k"])
        error -= operands["m"][:, None]
        axes["e"], factors["e"] = "nijay", jnp.square(error) if scalar == "Q" else error
    # The order decides between products of pairs that cost alike; this one is fast on a CPU.
    letters = sorted(factors, key="wkcqpPKe".index)
    subscripts = f"{','.join(axes[letter] for letter in letters)}->{axes[wrt]}"
    return jnp.einsum(subscripts, *(factors[letter] for letter in letters))
