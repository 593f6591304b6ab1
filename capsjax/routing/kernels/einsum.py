"""Any poses on any platform: matrix products over blocks of positions."""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from capsjax.routing.kernels import blocks
from capsjax.routing.kernels.terms import WEIGHTS, Operands, Sizes, shape_of, sizes_of

# The bytes of a block's largest array, [b, I, J, A, X or Y].
_BLOCK_BYTES = 64 * 2**20
_ON_CHIP = 2**23  # numbers, a quarter of what a v5e's chip holds: larger copies would leave it


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """Differentiates `scalar` by `wrt`, in blocks of positions that hold 64 MiB at most."""
    sizes = sizes_of(operands)
    flat = blocks.flatten_batch(operands, sizes)
    weights = {letter: flat.pop(letter) for letter in WEIGHTS if letter in flat}

    def one_block(block: Operands) -> Array:
        return _FORMULAS[scalar](wrt, **block, **weights)

    most = _BLOCK_BYTES // max(1, _bytes(scalar, sizes))
    # A program exported for batches of any size cannot have blocks.
    if not isinstance(sizes.positions, int) or sizes.positions <= most:
        out = one_block(flat)
    else:
        out = blocks.sum_or_map(one_block, flat, wrt, most)
    return out if wrt in WEIGHTS else out.reshape(*sizes.batch, *out.shape[1:])


def uniform(operands: Operands, wrt: str, platform: str) -> Array:
    """Differentiates U by `wrt`, one matrix product.

    On a TPU matrices are transposed to [I, A, X, N] for it, in which a kernel wants them too: XLA
    would move their rows apart instead, in copies of its own.
    """
    sizes = sizes_of(operands)
    flat, shape, n = blocks.flatten_batch(operands, sizes), shape_of("p", sizes), sizes.positions
    small = isinstance(n, int) and n * math.prod(shape) <= _ON_CHIP
    transposed = platform == "tpu" and sizes.rows > 1 and small
    poses, over = ("iaxn", (3, 1)) if transposed else ("niax", (0, 2))
    if transposed and "p" in flat:
        flat["p"] = flat["p"].reshape(n, math.prod(shape)).T.reshape(*shape, n)
    if wrt == "k":  # summed in the order in which autodiff would, for the same bits
        return jnp.tensordot(flat["q"], flat["p"], ((0, 2), over)).transpose(2, 3, 0, 1)
    if wrt == "q":
        out = jnp.einsum(f"{poses},ixjy->njay", flat["p"], flat["k"])
    else:
        out = jnp.einsum(f"ixjy,njay->{poses}", flat["k"], flat["q"])
        out = out.reshape(math.prod(shape), n).T if transposed else out
    return out.reshape(*sizes.batch, *shape_of(wrt, sizes))


def _bytes(scalar: str, sizes: Sizes) -> int:
    """Returns a position's bytes: of pulled or weighted poses for E, of votes for Q and G."""
    inner = sizes.columns if scalar == "E" else sizes.width
    return 4 * sizes.children * sizes.parents * sizes.rows * inner


def _linear(wrt: str, *, c=None, p=None, k=None, q=None) -> Array:
    """Derivatives of E = Σ_ij c_ij <P_i W_ij, q_j>."""
    if wrt in "cp":
        pulled = jnp.einsum("njay,ixjy->nijax", q, k)
        if wrt == "c":
            return jnp.einsum("niax,nijax->nij", p, pulled)
        return jnp.einsum("nij,nijax->niax", c, pulled)
    weighted = jnp.einsum("nij,niax->nijax", c, p)
    if wrt == "q":
        return jnp.einsum("nijax,ixjy->njay", weighted, k)
    return jnp.einsum("nijax,njay->ixjy", weighted, q)


def _quadratic(wrt: str, *, p, k, m, c=None, w=None) -> Array:
    """Derivatives of Q = Σ_ij c_ij <w_j, e_ij ∘ e_ij>."""
    squares = jnp.square(_residual(p, k, m))
    if wrt == "c":
        return jnp.einsum("nijay,njay->nij", squares, w)
    return jnp.einsum("nij,nijay->njay", c, squares)


def _bilinear(wrt: str, *, p, k, m, c=None, w=None, P=None, K=None) -> Array:
    """Derivatives of G = Σ_ij c_ij <w_j, e_ij ∘ P'_i W'_ij>."""
    residual = _residual(p, k, m)
    if wrt in "cw":
        residual *= jnp.einsum("niax,ixjy->nijay", P, K)
        if wrt == "c":
            return jnp.einsum("nijay,njay->nij", residual, w)
        return jnp.einsum("nij,nijay->njay", c, residual)
    residual *= c[..., None, None] * w[:, None]
    if wrt == "P":
        return jnp.einsum("nijay,ixjy->niax", residual, K)
    return jnp.einsum("nijay,niax->ixjy", residual, P)


def _residual(p: Array, k: Array, m: Array) -> Array:
    return jnp.einsum("niax,ixjy->nijay", p, k) - m[:, None]


_FORMULAS: dict[str, Callable[..., Array]] = {"E": _linear, "Q": _quadratic, "G": _bilinear}
