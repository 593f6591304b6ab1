"""The derivatives of E, Q and G as one JAX primitive, with its rules.

It is a primitive because linearity then gives all its rules: the tangent of a derivative of E is a
sum of derivatives of E, and so is its transpose. Forward and reverse mode follow, to any order, and
vmap moves its axis to the batch axes, so that the gradient of a kernel that is not mapped is summed
over the map in one contraction instead of being formed for each example.

`custom_vjp` with `custom_vmap` has that contraction under `grad(vmap(f))` too. But under
`vmap(grad(f))`, which asks for the gradient of each example, the same rule gives each their sum,
without a word. The rules of a primitive get both right (`test_gradients_of_each_example`).
"""

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from capsjax.routing.kernels import adapter, forms
from capsjax.routing.kernels.terms import AXES, KERNELS, LINEAR, Operands, operands_of, sizes_of


def combine(coupling: Array, poses: Array, kernel: Array) -> Array:
    """Σ_i c_ij P_i W_ij = ∂E/∂q."""
    return differentiate("E", "q", {"c": coupling, "p": poses, "k": kernel})


def agreement(poses: Array, kernel: Array, parents: Array) -> Array:
    """<P_i W_ij, q_j> = ∂E/∂c."""
    return differentiate("E", "c", {"p": poses, "k": kernel, "q": parents})


def scatter(coupling: Array, poses: Array, kernel: Array, means: Array) -> Array:
    """Σ_i c_ij (P_i W_ij − μ_j)² = ∂Q/∂w."""
    return differentiate("Q", "w", {"c": coupling, "p": poses, "k": kernel, "m": means})


def distance(poses: Array, kernel: Array, means: Array, precision: Array) -> Array:
    """<w_j, (P_i W_ij − μ_j)²> = ∂Q/∂c."""
    return differentiate("Q", "c", {"w": precision, "p": poses, "k": kernel, "m": means})


def differentiate(scalar: str, wrt: str, operands: Operands) -> Array:
    """The derivative of `scalar` by its operand `wrt`, given all others."""
    letters = operands_of(scalar, wrt)
    ordered = same_sharding(letters, [operands[letter] for letter in letters])
    return derivative_p.bind(*ordered, scalar=scalar, wrt=wrt)


def same_sharding(letters: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
    """The operands, typed as divided over the same devices: what is whole is cut as others are.

    A cotangent has the type of its operand, and all of a result's operands contribute to its type.
    """
    arrays = adapter.alike(arrays)
    spec = _batch_spec(letters, [jax.typeof(x) for x in arrays])
    return [
        x if letter in KERNELS else adapter.reshard(x, arrays, *spec)
        for letter, x in zip(letters, arrays, strict=True)
    ]


def abstract(letters: Sequence[str], avals: Sequence[Any], result: str) -> Any:
    """The type of an array with the axes of the operand `result`, given those of others."""
    sizes = sizes_of(letters, avals)
    extents = dict(zip("ijaxy", sizes[1:], strict=True))
    shape = tuple(extents[axis] for axis in AXES[result])
    if result in KERNELS:
        return adapter.typed(avals[0], shape, [None] * len(shape))
    spec = [*_batch_spec(letters, avals), *(None for _ in shape)]
    return adapter.typed(avals[0], sizes.batch + shape, spec)


def _batch_spec(letters: Sequence[str], avals: Sequence[Any]) -> list[Any]:
    """The axes of a mesh over which each batch axis is divided in one of the operands, or None."""
    axes: list[Any] = [None] * len(sizes_of(letters, avals).batch)
    for letter, aval in zip(letters, avals, strict=True):
        if letter not in KERNELS:
            spec = aval.sharding.spec[: len(axes)]
            axes = [a or b for a, b in zip(axes, spec, strict=True)]
    return axes


def _abstract(*avals: Any, scalar: str, wrt: str) -> Any:
    return abstract(operands_of(scalar, wrt), avals, wrt)


def _choose(
    target: adapter.Target, avals: Sequence[Any], *, scalar: str, wrt: str
) -> tuple[Callable[..., Array], bool]:
    letters = operands_of(scalar, wrt)
    chosen = forms.choose(target, sizes_of(letters, avals), avals[0].dtype)

    def evaluate(*args: Array) -> Array:
        return chosen.differentiate(dict(zip(letters, args, strict=True)), scalar=scalar, wrt=wrt)

    return evaluate, chosen.is_kernel


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, scalar: str, wrt: str) -> Any:
    operands = dict(zip(operands_of(scalar, wrt), primals, strict=True))
    rates = {
        letter: adapter.instantiate(tangent)
        for letter, tangent in zip(operands, tangents, strict=True)
        if not adapter.is_zero(tangent)
    }
    out = differentiate(scalar, wrt, operands)
    terms = [
        differentiate(scalar, wrt, operands | {letter: rate})
        for letter, rate in rates.items()
        if letter in LINEAR[scalar]
    ]
    others = {letter: rate for letter, rate in rates.items() if letter not in LINEAR[scalar]}
    if scalar == "Q":
        terms += [_rate_of_square(wrt, operands, letter, rate) for letter, rate in others.items()]
    elif others:  # second derivatives of EM: rare, and left to autodiff of the plain formula
        terms.append(_rate_of_residual(wrt, operands, others))
    return out, functools.reduce(operator.add, terms)


def _rate_of_square(wrt: str, operands: Operands, letter: str, rate: Array) -> Array:
    """Tangent of a derivative of Q for a tangent of P, W or μ; de² = 2e de."""
    if letter == "p":
        return 2 * differentiate("G", wrt, operands | {"P": rate, "K": operands["k"]})
    if letter == "k":
        return 2 * differentiate("G", wrt, operands | {"P": operands["p"], "K": rate})
    poses, kernel, means = operands["p"], operands["k"], operands["m"]
    if wrt == "c":
        weighted = operands["w"] * rate
        constant = jnp.sum(means * weighted, axis=(-2, -1))
        return -2 * (agreement(poses, kernel, weighted) - constant[..., None, :])
    mass = jnp.sum(operands["c"], axis=-2)[..., None, None]
    return -2 * rate * (combine(operands["c"], poses, kernel) - mass * means)


def _rate_of_residual(wrt: str, operands: Operands, rates: Operands) -> Array:
    """Tangent of a derivative of G for tangents of P, W and μ, with the votes written out."""

    def plain(varied: Operands) -> Array:
        xs = operands | varied
        residual = jnp.einsum("...iax,ixjy->...ijay", xs["p"], xs["k"])
        residual -= xs["m"][..., None, :, :, :]
        letters = [letter for letter in "cwPK" if letter != wrt]
        subscripts = ",".join(AXES[a] if a in KERNELS else "..." + AXES[a] for a in letters)
        result = AXES[wrt] if wrt in KERNELS else "..." + AXES[wrt]
        return jnp.einsum(
            f"...ijay,{subscripts}->{result}", residual, *(xs[letter] for letter in letters)
        )

    values = {letter: operands[letter] for letter in rates}
    return jax.jvp(plain, (values,), (rates,))[1]


def _transpose(cotangent: Any, *primals: Any, scalar: str, wrt: str) -> list[Any]:
    letters = operands_of(scalar, wrt)
    (unknown,) = (
        letter
        for letter, primal in zip(letters, primals, strict=True)
        if adapter.is_unknown(primal)
    )
    if adapter.is_zero(cotangent):
        return [None] * len(letters)
    known = dict(zip(letters, primals, strict=True)) | {wrt: cotangent}
    result = differentiate(scalar, unknown, known)
    return [result if letter == unknown else None for letter in letters]


def batched(
    letters: Sequence[str], args: Sequence[Array], axes: Sequence[Any], *, to_kernel: bool
) -> list[Array] | None:
    """The operands, mapped or not, with the mapped axis first; None if a kernel is mapped.

    A kernel for each example has no place among the batch axes, and neither has the gradient of
    one (`to_kernel`): such a map goes through its examples one at a time.
    """
    mapped = [axis is not None for axis in axes]
    if to_kernel or any(m and a in KERNELS for a, m in zip(letters, mapped, strict=True)):
        return None
    size = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)

    def placed(letter: str, x: Array, axis: Any) -> Array:
        if letter in KERNELS:
            return x
        return jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)

    return same_sharding(letters, [placed(*each) for each in zip(letters, args, axes, strict=True)])


def one_at_a_time(f: Callable[..., Any], args: Sequence[Array], axes: Sequence[Any]) -> Any:
    """`f` mapped over the axes that are not None, in a loop."""
    mapped = [
        jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True) if axis is not None
    ]

    def one(xs: list[Array]) -> Any:
        rest = iter(xs)
        return f(*(x if a is None else next(rest) for x, a in zip(args, axes, strict=True)))

    return lax.map(one, mapped)


def _batch(
    args: Sequence[Array], axes: Sequence[Any], *, scalar: str, wrt: str
) -> tuple[Array, int]:
    operands = batched(operands_of(scalar, wrt), args, axes, to_kernel=wrt in KERNELS)
    if operands is None:
        return one_at_a_time(partial(derivative_p.bind, scalar=scalar, wrt=wrt), args, axes), 0
    return derivative_p.bind(*operands, scalar=scalar, wrt=wrt), 0


derivative_p = adapter.define("capsjax_vote_derivative", abstract=_abstract, choose=_choose)
adapter.set_rules(derivative_p, jvp=_jvp, batch=_batch, transpose=_transpose)
