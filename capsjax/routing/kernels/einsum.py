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
