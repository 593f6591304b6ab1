"""Contractions of votes v_ij = P_i W_ij for small pose matrices, with no vote ever stored.

Everything that routing asks of votes is a derivative of one of two scalars, where e = PW − μ:

  E = Σ_ij c_ij <P_i W_ij, q_j>       Q = Σ_ij c_ij <w_j, e_ij ∘ e_ij>

and every gradient of routing is a derivative of E, Q, or

  G = Σ_ij c_ij <w_j, e_ij ∘ P'_i W'_ij>

Each derivative is a sum, over all but a few axes, of terms that are cheap to write out: the small
matrix products are unrolled to multiplications and additions of arrays [b, I, J], J last, which XLA
fuses with the sum over b, I or J into one loop. Left to autodiff the unrolled form is slow, and
XLA's batched products of 4×4 matrices are slower still.

They are JAX primitives, because then linearity says it all: the tangent of a derivative of E is a
sum of derivatives of E, and so is its transpose. Forward and reverse mode follow, and vmap moves
its axis to the batch axes, so that the gradient of a kernel that is not mapped is summed over the
map in one contraction instead of being formed for each example.

Operands, by their letters here: c [*batch, I, J]; p and P (P') [*batch, I, A, X]; k and K (W, W')
[I, X, J, Y]; q, w and m (μ) [*batch, J, A, Y].
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

# What one array [b, I, J] of a block may take on a CPU: about the L2 cache of a core.
_BLOCK_BYTES = 2 * 2**20

_AXES = {"c": "ij", "p": "iax", "P": "iax", "k": "ixjy", "K": "ixjy"}
_AXES |= dict.fromkeys("qwm", "jay")
_KERNELS = "kK"  # without batch axes
_OPERANDS = {"E": "cpkq", "Q": "cwpkm", "G": "cwpkmPK"}
_LINEAR = {"E": "cpkq", "Q": "cw", "G": "cwPK"}

_Operands = dict[str, Any]
_Grid = list[list[Array]]  # the entries of small matrices, each an array that fits [b, I, J]


def combine(coupling: Array, poses: Array, kernel: Array) -> Array:
    """Σ_i c_ij P_i W_ij = ∂E/∂q."""
    return _differentiate("E", "q", {"c": coupling, "p": poses, "k": kernel})


def agreement(poses: Array, kernel: Array, parents: Array) -> Array:
    """<P_i W_ij, q_j> = ∂E/∂c."""
    return _differentiate("E", "c", {"p": poses, "k": kernel, "q": parents})


def scatter(coupling: Array, poses: Array, kernel: Array, means: Array) -> Array:
    """Σ_i c_ij (P_i W_ij − μ_j)² = ∂Q/∂w."""
    return _differentiate("Q", "w", {"c": coupling, "p": poses, "k": kernel, "m": means})


def distance(poses: Array, kernel: Array, means: Array, precision: Array) -> Array:
    """<w_j, (P_i W_ij − μ_j)²> = ∂Q/∂c."""
    return _differentiate("Q", "c", {"w": precision, "p": poses, "k": kernel, "m": means})


def _differentiate(form: str, wrt: str, operands: _Operands) -> Array:
    """The derivative of `form` by its operand `wrt`, given all others."""
    ordered = [operands[letter] for letter in _given(form, wrt)]
    # Under `jax.shard_map` a kernel is the same on all devices and poses are not, which is a part
    # of their types: all are to have one.
    varying = [_varying(x) for x in ordered]
    missing = [frozenset().union(*varying) - axes for axes in varying]
    ordered = [
        lax.pcast(x, tuple(axes), to="varying") if axes else x
        for x, axes in zip(ordered, missing, strict=True)
    ]
    return derivative_p.bind(*ordered, form=form, wrt=wrt)


def _varying(x: Array) -> frozenset[str]:
    """The axes of `jax.shard_map` over which `x` differs."""
    aval: Any = jax.typeof(x)
    manual = getattr(aval, "manual_axis_type", None)  # JAX before 0.10 had `vma` in its place
    return getattr(aval, "vma", frozenset()) if manual is None else manual.varying


def _given(form: str, wrt: str) -> list[str]:
    return [letter for letter in _OPERANDS[form] if letter != wrt]


derivative_p = Primitive("capsjax_vote_derivative")


@derivative_p.def_abstract_eval
def _abstract(*avals: Any, form: str, wrt: str) -> jax.core.ShapedArray:
    sizes: dict[str, int] = {}
    batch: tuple[int, ...] = ()
    divided: list[Any] = []  # of each batch axis, over which explicit axes of a mesh
    for letter, aval in zip(_given(form, wrt), avals, strict=True):
        axes = _AXES[letter]
        sizes |= zip(axes, aval.shape[-len(axes) :], strict=True)
        if letter in _KERNELS:
            continue
        batch, specs = aval.shape[: -len(axes)], aval.sharding.spec[: -len(axes)]
        divided = [a or b for a, b in zip(divided or specs, specs, strict=True)]
    shape = tuple(sizes[axis] for axis in _AXES[wrt])
    if wrt in _KERNELS:
        batch, divided = (), []
    spec = jax.sharding.PartitionSpec(*divided, *(None,) * len(shape))
    return avals[0].update(shape=batch + shape, sharding=avals[0].sharding.update(spec=spec))


# Rules of differentiation and vectorisation.


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, form: str, wrt: str) -> Any:
    operands = dict(zip(_given(form, wrt), primals, strict=True))
    rates = {
        letter: ad.instantiate_zeros(tangent)
        for letter, tangent in zip(operands, tangents, strict=True)
        if type(tangent) is not ad.Zero
    }
    out = _differentiate(form, wrt, operands)
    terms = [
        _differentiate(form, wrt, operands | {letter: rate})
        for letter, rate in rates.items()
        if letter in _LINEAR[form]
    ]
    others = {letter: rate for letter, rate in rates.items() if letter not in _LINEAR[form]}
    if form == "Q":
        terms += [_rate_of_square(wrt, operands, letter, rate) for letter, rate in others.items()]
    elif others:  # second derivatives of EM: rare, and left to autodiff of the plain formula
        plain = functools.partial(_plain, form, wrt)
        terms.append(jax.jvp(lambda xs: plain(operands | xs), *_both(operands, others))[1])
    return out, functools.reduce(operator.add, terms)


def _both(operands: _Operands, rates: _Operands) -> tuple[tuple[_Operands], tuple[_Operands]]:
    return ({letter: operands[letter] for letter in rates},), (rates,)


def _rate_of_square(wrt: str, operands: _Operands, letter: str, rate: Array) -> Array:
    """Tangent of a derivative of Q for a tangent of P, W or μ; de² = 2e de."""
    if letter == "p":
        return 2 * _differentiate("G", wrt, operands | {"P": rate, "K": operands["k"]})
    if letter == "k":
        return 2 * _differentiate("G", wrt, operands | {"P": operands["p"], "K": rate})
    poses, kernel, means = operands["p"], operands["k"], operands["m"]
    if wrt == "c":
        weighted = operands["w"] * rate
        constant = jnp.sum(means * weighted, axis=(-2, -1))
        return -2 * (agreement(poses, kernel, weighted) - constant[..., None, :])
    mass = jnp.sum(operands["c"], axis=-2)[..., None, None]
    return -2 * rate * (combine(operands["c"], poses, kernel) - mass * means)


def _transpose(cotangent: Any, *primals: Any, form: str, wrt: str) -> list[Any]:
    letters = _given(form, wrt)
    (unknown,) = (
        letter
        for letter, primal in zip(letters, primals, strict=True)
        if ad.is_undefined_primal(primal)
    )
    if type(cotangent) is ad.Zero:
        return [None] * len(letters)
    known = dict(zip(letters, primals, strict=True)) | {wrt: cotangent}
    result = _differentiate(form, unknown, known)
    return [result if letter == unknown else None for letter in letters]


def _batch(args: Sequence[Array], axes: Sequence[Any], *, form: str, wrt: str) -> tuple[Array, int]:
    letters = _given(form, wrt)
    mapped = {
        letter: jnp.moveaxis(x, axis, 0)
        for letter, x, axis in zip(letters, args, axes, strict=True)
        if axis is not None
    }
    fixed = {letter: x for letter, x in zip(letters, args, strict=True) if letter not in mapped}
    if wrt in _KERNELS or any(letter in _KERNELS for letter in mapped):
        # A kernel for each example has no place among the batch axes: one example at a time.
        return lax.map(lambda xs: _differentiate(form, wrt, fixed | xs), mapped), 0
    size = next(iter(mapped.values())).shape[0]
    spread = {
        letter: x if letter in _KERNELS else jnp.broadcast_to(x, (size, *x.shape))
        for letter, x in fixed.items()
    }
    return _differentiate(form, wrt, mapped | spread), 0


ad.primitive_jvps[derivative_p] = _jvp
ad.primitive_transposes[derivative_p] = _transpose
batching.primitive_batchers[derivative_p] = _batch


# Arithmetic.


def _evaluate(*args: Array, form: str, wrt: str, blocked: bool) -> Array:
    """The derivative, in blocks of the batch if `blocked`."""
    operands = dict(zip(_given(form, wrt), args, strict=True))
    if form == "G" and wrt in "cw":
        return _plain(form, wrt, operands)  # met in forward mode only
    batch = next(x.shape[: -len(_AXES[a])] for a, x in operands.items() if a not in _KERNELS)
    size = math.prod(batch)
    laid_out = {letter: _lay_out(letter, x, size) for letter, x in operands.items()}
    kernels = {letter: laid_out.pop(letter) for letter in _KERNELS if letter in laid_out}

    def one_block(block: _Operands) -> Array:
        grids = {letter: _grid(letter, x) for letter, x in (block | kernels).items()}
        return _sum_terms(_TERMS[form, wrt](**grids), wrt)

    if not blocked:
        return _restore(one_block(laid_out), wrt, batch)
    length = _block_length(size, operands)
    blocks = jax.tree.map(lambda x: _split(x, length), laid_out)
    if wrt in _KERNELS:
        zero = jax.eval_shape(one_block, jax.tree.map(lambda x: x[0], blocks))
        out, _ = lax.scan(
            lambda total, block: (total + one_block(block), None), jnp.zeros_like(zero), blocks
        )
    else:
        out = lax.map(one_block, blocks)
        out = out.reshape(out.shape[0] * out.shape[1], *out.shape[2:])[:size]
    return _restore(out, wrt, batch)


# The terms of each derivative as a grid of arrays [b, I, J], before the sum over b, I or J. An
# operand is a grid too: of pose entries, of kernel entries, of vote entries for q, w, m.
_TERMS: dict[tuple[str, str], Callable[..., _Grid]] = {
    ("E", "c"): lambda p, k, q: [[_dot(_product(p, k), q)]],
    ("E", "q"): lambda c, p, k: _scale(c, _product(p, k)),
    ("E", "p"): lambda c, k, q: _scale(c, _product(q, _transposed(k))),
    ("E", "k"): lambda c, p, q: _scale(c, _product(_transposed(p), q)),
    ("Q", "c"): lambda w, p, k, m: [[_dot(w, _squared(_residual(p, k, m)))]],
    ("Q", "w"): lambda c, p, k, m: _scale(c, _squared(_residual(p, k, m))),
    ("G", "P"): lambda c, w, p, k, m, K: _scale(
        c, _product(_times(w, _residual(p, k, m)), _transposed(K))
    ),
    ("G", "K"): lambda c, w, p, k, m, P: _scale(
        c, _product(_transposed(P), _times(w, _residual(p, k, m)))
    ),
}


def _dot(left: _Grid, right: _Grid) -> Array:
    return functools.reduce(operator.add, itertools.chain(*_times(left, right)))


def _product(left: _Grid, right: _Grid) -> _Grid:
    """Matrix product."""
    return [[_dot([row], [list(column)]) for column in zip(*right, strict=True)] for row in left]


def _transposed(grid: _Grid) -> _Grid:
    return [list(column) for column in zip(*grid, strict=True)]


def _times(left: _Grid, right: _Grid) -> _Grid:
    return [[x * y for x, y in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def _scale(coupling: _Grid, grid: _Grid) -> _Grid:
    return [[coupling[0][0] * x for x in row] for row in grid]


def _squared(grid: _Grid) -> _Grid:
    return _times(grid, grid)


def _residual(poses: _Grid, kernel: _Grid, means: _Grid) -> _Grid:
    votes = _product(poses, kernel)
    return [[v - m for v, m in zip(*rows, strict=True)] for rows in zip(votes, means, strict=True)]


def _sum_terms(terms: _Grid, wrt: str) -> Array:
    """All terms, summed in one pass over the axis that the result lacks."""
    if wrt == "c":
        return terms[0][0]
    axis = 0 if wrt in _KERNELS else 2 if wrt in "pP" else 1
    flat = list(itertools.chain(*terms))
    shape = jnp.broadcast_shapes(*(term.shape for term in flat))
    sums = lax.reduce(
        tuple(jnp.broadcast_to(term, shape) for term in flat),
        (jnp.zeros((), flat[0].dtype),) * len(flat),
        lambda totals, new: tuple(map(operator.add, totals, new)),
        (axis,),
    )
    stacked = jnp.stack(sums, axis=0 if wrt in _KERNELS else 1)
    first = stacked.shape[: 0 if wrt in _KERNELS else 1]
    return stacked.reshape(*first, len(terms), len(terms[0]), *stacked.shape[len(first) + 1 :])


# Layout: in here matrix entries come before I and J, so that the last axis is long.


def _lay_out(letter: str, x: Array, size: int) -> Array:
    """[X, Y, I, J] for kernels, otherwise [size, I, J], [size, A, X, I] or [size, A, Y, J]."""
    if letter in _KERNELS:
        return x.transpose(1, 3, 0, 2)
    x = x.reshape(size, *x.shape[x.ndim - len(_AXES[letter]) :])
    return x if letter == "c" else jnp.moveaxis(x, 1, -1)


def _restore(x: Array, wrt: str, batch: tuple[int, ...]) -> Array:
    """The inverse of `_lay_out`."""
    if wrt in _KERNELS:
        return x.transpose(2, 0, 3, 1)
    x = x if wrt == "c" else jnp.moveaxis(x, -1, 1)
    return x.reshape(*batch, *x.shape[1:])


def _grid(letter: str, x: Array) -> _Grid:
    """The entries of `x`, laid out, as arrays that fit [b, I, J]."""
    if letter == "c":
        return [[x]]
    if letter in _KERNELS:
        return [[x[None, row, column] for column in range(x.shape[1])] for row in range(x.shape[0])]
    x = jnp.expand_dims(x, -1 if letter in "pP" else -2)
    return [[x[:, row, column] for column in range(x.shape[2])] for row in range(x.shape[1])]


def _block_length(size: int, operands: _Operands) -> int:
    """How many of the batch make a block, as even as can be."""
    kernel = next((operands[letter] for letter in _KERNELS if letter in operands), None)
    if kernel is not None:
        children, _, parents, _ = kernel.shape
    else:
        children, parents = operands["c"].shape[-2:]
    most = max(1, _BLOCK_BYTES // (children * parents * 4))
    blocks = max(1, -(-size // most))
    return max(1, -(-size // blocks))  # an empty batch has a block of nothing but padding


def _split(x: Array, length: int) -> Array:
    """[blocks, length, …], padded with zeros."""
    count = -(-x.shape[0] // length)
    padded = jnp.pad(x, [(0, count * length - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
    return padded.reshape(count, length, *x.shape[1:])


def _plain(form: str, wrt: str, operands: _Operands) -> Array:
    """The derivative with the votes written out, for what is rare."""
    assert form == "G"
    residual = jnp.einsum("...iax,ixjy->...ijay", operands["p"], operands["k"])
    residual -= operands["m"][..., None, :, :, :]
    given = {a: operands[a] for a in "cwPK" if a != wrt}
    subscripts = ",".join(_AXES[a] if a in _KERNELS else "..." + _AXES[a] for a in given)
    result = _AXES[wrt] if wrt in _KERNELS else "..." + _AXES[wrt]
    return jnp.einsum(f"...ijay,{subscripts}->{result}", residual, *given.values())


# On a CPU, XLA would expand a derivative that feeds another reduction (the maximum in a softmax)
# and store every term; a loop over blocks is a boundary it does not cross. Elsewhere a loop would
# leave the device idle.
mlir.register_lowering(
    derivative_p,
    mlir.lower_fun(functools.partial(_evaluate, blocked=False), multiple_results=False),
)
mlir.register_lowering(
    derivative_p,
    mlir.lower_fun(functools.partial(_evaluate, blocked=True), multiple_results=False),
    platform="cpu",
)
derivative_p.def_impl(jax.jit(derivative_p.bind, static_argnames=("form", "wrt")))
