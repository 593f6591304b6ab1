"""The derivatives of U, E, Q and G as one JAX primitive, with its rules.

It is a primitive because linearity then gives all its rules: the tangent of a derivative of E is a
sum of derivatives of E, and so is its transpose. Forward and reverse mode follow, to any order, and
vmap moves its axis to the batch axes, so that the gradient of weights that are not mapped is summed
over the map in one contraction instead of being formed for each example.

`custom_vjp` with `custom_vmap` has that contraction under `grad(vmap(f))` too. But under
`vmap(grad(f))`, which asks for the gradient of each example, the same rule silently gives each
their sum. The rules of a primitive get both right (`test_gradients_of_each_example`).
"""

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array

from capsjax.routing.kernels import adapter, einsum, forms
from capsjax.routing.kernels.terms import (
    AXES,
    LINEAR,
    TERMS,
    WEIGHTS,
    Operands,
    operands_of,
    shape_of,
    sizes_of,
)


def total(poses: Array, weights: Array) -> Array:
    """Returns Σ_i P_i W_ij = ∂U/∂q."""
    return differentiate("U", "q", {"p": poses, "k": weights})


def combine(coupling: Array, poses: Array, weights: Array) -> Array:
    """Returns Σ_i c_ij P_i W_ij = ∂E/∂q."""
    return differentiate("E", "q", {"c": coupling, "p": poses, "k": weights})


def agreement(poses: Array, weights: Array, parents: Array) -> Array:
    """Returns <P_i W_ij, q_j> = ∂E/∂c."""
    return differentiate("E", "c", {"p": poses, "k": weights, "q": parents})


def scatter(coupling: Array, poses: Array, weights: Array, means: Array) -> Array:
    """Returns Σ_i c_ij (P_i W_ij − μ_j)² = ∂Q/∂w."""
    return differentiate("Q", "w", {"c": coupling, "p": poses, "k": weights, "m": means})


def distance(poses: Array, weights: Array, means: Array, precision: Array) -> Array:
    """Returns <w_j, (P_i W_ij − μ_j)²> = ∂Q/∂c."""
    return differentiate("Q", "c", {"w": precision, "p": poses, "k": weights, "m": means})


def differentiate(scalar: str, wrt: str, operands: Operands) -> Array:
    """Returns the derivative of `scalar` by its operand `wrt`, given all others."""
    letters = operands_of(scalar, wrt)
    ordered = adapter.alike([operands[letter] for letter in letters])
    return derivative_p.bind(*ordered, scalar=scalar, wrt=wrt)


def abstract(letters: Sequence[str], avals: Sequence[Any], result: str) -> Any:
    """Returns the type of an array with the axes of the operand `result`, given those of others."""
    sizes = sizes_of(dict(zip(letters, avals, strict=True)))
    shape = shape_of(result, sizes)
    if result in WEIGHTS:
        return adapter.typed(avals, shape, [None] * len(shape))
    spec = adapter.batch_spec(avals, own_axes(letters))
    return adapter.typed(avals, sizes.batch + shape, [*spec, *(None for _ in shape)])


def own_axes(letters: Sequence[str]) -> list[int]:
    """Counts the axes of each operand that are not batch axes."""
    return [len(AXES[letter]) for letter in letters]


def _choose(
    target: adapter.Target, avals: Sequence[Any], *, scalar: str, wrt: str
) -> tuple[Callable[..., Array], bool]:
    letters = operands_of(scalar, wrt)
    sizes = sizes_of(dict(zip(letters, avals, strict=True)))
    chosen = forms.choose(target, sizes, avals[0].dtype)
    if scalar == "U":
        compute = partial(einsum.uniform, platform=target.platform)
    else:  # what TERMS lacks is needed in forward mode only
        known = chosen.differentiate if (scalar, wrt) in TERMS else einsum.differentiate
        compute = partial(known, scalar=scalar)

    def evaluate(*args: Array) -> Array:
        return compute(dict(zip(letters, args, strict=True)), wrt=wrt)

    return evaluate, chosen.is_kernel


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, scalar: str, wrt: str) -> Any:
    operands = dict(zip(operands_of(scalar, wrt), primals, strict=True))
    rates = adapter.nonzero(operands, tangents)
    out = differentiate(scalar, wrt, operands)
    terms = [
        differentiate(scalar, wrt, operands | {letter: rate})
        for letter, rate in rates.items()
        if letter in LINEAR[scalar]
    ]
    others = {letter: rate for letter, rate in rates.items() if letter not in LINEAR[scalar]}
    if scalar == "Q":
        terms += [_rate_of_square(wrt, operands, letter, rate) for letter, rate in others.items()]
    elif others:  # second derivatives of EM: rare, and left to autodiff of the products

        def products(varied: Operands) -> Array:
            return einsum.differentiate(operands | varied, scalar=scalar, wrt=wrt)

        at = {letter: operands[letter] for letter in others}
        terms.append(jax.jvp(products, (at,), (others,))[1])
    return out, functools.reduce(operator.add, terms)


def _rate_of_square(wrt: str, operands: Operands, letter: str, rate: Array) -> Array:
    """Returns the tangent of a derivative of Q for a tangent of P, W or μ; de² = 2e de."""
    if letter == "p":
        return 2 * differentiate("G", wrt, operands | {"P": rate, "K": operands["k"]})
    if letter == "k":
        return 2 * differentiate("G", wrt, operands | {"P": operands["p"], "K": rate})
    poses, weights, means = operands["p"], operands["k"], operands["m"]
    if wrt == "c":
        weighted = operands["w"] * rate
        constant = jnp.sum(means * weighted, axis=(-2, -1))
        return -2 * (agreement(poses, weights, weighted) - constant[..., None, :])
    mass = jnp.sum(operands["c"], axis=-2)[..., None, None]
    return -2 * rate * (combine(operands["c"], poses, weights) - mass * means)


def _transpose(cotangent: Any, *primals: Any, scalar: str, wrt: str) -> list[Any]:
    letters = operands_of(scalar, wrt)
    pairs = zip(letters, primals, strict=True)
    (unknown,) = (letter for letter, primal in pairs if adapter.is_unknown(primal))
    if adapter.is_zero(cotangent):
        return [None] * len(letters)
    known = dict(zip(letters, primals, strict=True)) | {wrt: cotangent}
    result = adapter.with_sharding(differentiate(scalar, unknown, known), known[unknown].aval)
    return [result if letter == unknown else None for letter in letters]


def batch_rule(primitive: Any, letters: Callable[..., tuple[Sequence[str], str]]) -> Any:
    """Maps a primitive: the mapped axis becomes one of the batch axes.

    Weights for each example have no place among these, and neither has the gradient of weights:
    such a map goes through its examples one at a time.

    Args:
      primitive: an operation on operands.
      letters: from its parameters to the letters of its operands and of its results.
    """

    def rule(args: Sequence[Array], axes: Sequence[Any], **params: Any) -> Any:
        operands, results = letters(**params)
        apply = partial(primitive.bind, **params)
        by_letter = list(zip(operands, args, axes, strict=True))
        mapped = [letter for letter, _, axis in by_letter if axis is not None]
        if any(letter in WEIGHTS for letter in [*results, *mapped]):
            out = _one_at_a_time(apply, args, axes)
        else:
            size = next(x.shape[axis] for _, x, axis in by_letter if axis is not None)
            out = apply(*(_with_batch_axis(*each, size) for each in by_letter))
        return out, [0] * len(out) if primitive.multiple_results else 0

    return rule


def _with_batch_axis(letter: str, x: Array, axis: int | None, size: int) -> Array:
    if letter in WEIGHTS:
        return x
    return jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)


def _one_at_a_time(f: Callable[..., Any], args: Sequence[Array], axes: Sequence[Any]) -> Any:
    """Maps `f` over the axes that are not None, in a loop: on each device over its own part."""
    pairs = list(zip(args, axes, strict=True))
    moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in pairs]

    def loop(*args: Array) -> Any:
        mapped = {n: x for n, x in enumerate(args) if axes[n] is not None}
        return lax.map(lambda xs: f(*(xs.get(n, x) for n, x in enumerate(args))), mapped)

    own = [x.ndim - (axis is not None) for x, axis in pairs]
    (names,) = adapter.batch_spec([jax.typeof(x) for x in moved], own)
    if names is None:
        return loop(*moved)
    return adapter.on_each_device(loop, moved, own_axes=own, out_specs=PartitionSpec(names))


derivative_p = adapter.define(
    "capsjax_vote_derivative",
    abstract=lambda *avals, scalar, wrt: abstract(operands_of(scalar, wrt), avals, wrt),
    choose=_choose,
    own_axes=lambda scalar, wrt: own_axes(operands_of(scalar, wrt)),
)
adapter.set_rules(
    derivative_p,
    jvp=_jvp,
    batch=batch_rule(derivative_p, lambda scalar, wrt: (operands_of(scalar, wrt), wrt)),
    transpose=_transpose,
)
