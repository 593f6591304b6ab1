"""Small pose matrices on a CPU: elementwise loops over [b, I, J], J last, that XLA fuses.

XLA fuses the unrolled terms with the sum over b, I or J into one loop that stores no vote. Left to
autodiff the unrolled form is slow, and XLA's batched products of 4×4 matrices are slower still.
XLA would expand a derivative that feeds another reduction (the maximum in a softmax) and store
every term; a loop over blocks is a boundary that it does not cross.
"""

import operator

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from capsjax.routing.kernels import blocks
from capsjax.routing.kernels.terms import POSES, TERMS, WEIGHTS, Matrix, Operands, matrix, sizes_of

# What one array [b, I, J] of a block may take: about the L2 cache of a core.
_BLOCK_BYTES = 2 * 2**20


def differentiate(operands: Operands, *, scalar: str, wrt: str) -> Array:
    """Returns the derivative of `scalar` by `wrt`, in blocks of positions."""
    sizes = sizes_of(operands)
    flat = blocks.flatten_batch(operands, sizes)
    laid_out = {letter: _lay_out(letter, x) for letter, x in flat.items()}
    weights = {letter: laid_out.pop(letter) for letter in WEIGHTS if letter in laid_out}

    def one_block(block: Operands) -> Array:
        matrices = {letter: _matrix(letter, x) for letter, x in (block | weights).items()}
        return _sum_terms(TERMS[scalar, wrt](**matrices), wrt)

    most = _BLOCK_BYTES // max(1, sizes.children * sizes.parents * 4)
    out = blocks.sum_or_map(one_block, laid_out, wrt, most)
    return _restore(out, wrt, sizes.batch)


def _sum_terms(terms: Matrix, wrt: str) -> Array:
    """Sums all terms in one pass over the axis that the result lacks."""
    if wrt == "c":
        return terms[0, 0]
    axis = 0 if wrt in WEIGHTS else 2 if wrt in POSES else 1
    entries = list(terms.flat)
    shape = jnp.broadcast_shapes(*(term.shape for term in entries))
    sums = lax.reduce(
        tuple(jnp.broadcast_to(term, shape) for term in entries),
        (jnp.zeros((), entries[0].dtype),) * len(entries),
        lambda totals, new: tuple(map(operator.add, totals, new)),
        (axis,),
    )
    stacked = jnp.stack(sums, axis=0 if wrt in WEIGHTS else 1)
    first = stacked.shape[: 0 if wrt in WEIGHTS else 1]
    return stacked.reshape(*first, *terms.shape, *stacked.shape[len(first) + 1 :])


# Layout: within this file matrix entries come before I and J, so that the last axis is long.


def _lay_out(letter: str, x: Array) -> Array:
    """Returns [X, Y, I, J] for weights, otherwise [N, I, J], [N, A, X, I] or [N, A, Y, J]."""
    if letter in WEIGHTS:
        return x.transpose(1, 3, 0, 2)
    return x if letter == "c" else jnp.moveaxis(x, 1, -1)


def _restore(x: Array, wrt: str, batch: tuple[int, ...]) -> Array:
    """Inverts `_lay_out`, with all batch axes."""
    if wrt in WEIGHTS:
        return x.transpose(2, 0, 3, 1)
    x = x if wrt == "c" else jnp.moveaxis(x, -1, 1)
    return x.reshape(*batch, *x.shape[1:])


def _matrix(letter: str, x: Array) -> Matrix:
    """Returns `x`, laid out, as a matrix of arrays that fit [b, I, J]."""
    if letter == "c":
        return matrix([x])
    # Weights [1, X, Y, I, J], poses [b, A, X, I, 1] or those of parents [b, A, Y, 1, J].
    x = x[None] if letter in WEIGHTS else jnp.expand_dims(x, -1 if letter in POSES else -2)
    rows, columns = x.shape[1:3]
    return matrix([x[:, row, column] for row in range(rows) for column in range(columns)], columns)
