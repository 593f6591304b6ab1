"""Operations of a function, counted and not measured."""

import math
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

# Names of JAX's primitives.
ELEMENTWISE = """
    add sub mul div rem neg abs sign max min pow integer_pow square sqrt rsqrt cbrt exp exp2 expm1
    log log1p tanh logistic sin cos erf erfc add_any atan2
"""
REDUCTIONS = """
    reduce reduce_sum reduce_max reduce_min reduce_prod argmax argmin cumsum cumlogsumexp
"""


class Operations(NamedTuple):
    """What one call does."""

    products: float = 0  # of matrix products and convolutions, two for each multiply-add
    others: float = 0  # one for each number that arithmetic makes or a reduction reads
    bytes: float = 0  # of products and reductions; the rest is taken to be fused into them

    def plus(self, other: "Operations", times: int = 1) -> "Operations":
        return Operations(*(a + times * b for a, b in zip(self, other, strict=True)))


def operations(jaxpr: Jaxpr) -> Operations:
    """Counts a jaxpr's operations, with the accelerators' branch of a choice and all loop steps.

    XLA's own count takes the body of a loop once.
    """
    total = Operations()
    for equation in jaxpr.eqns:
        total = total.plus(_of(equation))
    return total


def _of(equation: Any) -> Operations:
    name, parameters = equation.primitive.name, equation.params
    if name == "scan":
        return Operations().plus(operations(parameters["jaxpr"].jaxpr), parameters["length"])
    if name == "cond":
        return operations(parameters["branches"][-1].jaxpr)
    if name == "while":
        body = operations(parameters["body_jaxpr"].jaxpr)
        if any(body):
            raise ValueError("a loop whose length depends on data cannot be counted")
        return body
    if not equation.outvars:  # a call whose results nobody uses
        return Operations()
    out = equation.outvars[0].aval
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        left = equation.invars[0].aval.shape
        depth = math.prod(left[axis] for axis in contracted)
        return Operations(2 * out.size * depth, 0, _bytes(equation))
    if name == "conv_general_dilated":
        return Operations(2 * _multiply_adds(equation), 0, _bytes(equation))
    if name in REDUCTIONS.split():
        return Operations(0, equation.invars[0].aval.size, _bytes(equation))
    if name in ELEMENTWISE.split() and np.issubdtype(out.dtype, np.floating):
        return Operations(0, out.size)
    inner = Operations()
    for value in parameters.values():
        if isinstance(value, ClosedJaxpr | Jaxpr):
            inner = inner.plus(operations(getattr(value, "jaxpr", value)))
    return inner


def _multiply_adds(convolution: Any) -> int:
    """Operations without padding and the zeros between the numbers that a gradient reads."""
    parameters = convolution.params
    images, kernel = (variable.aval.shape for variable in convolution.invars)
    out = convolution.outvars[0].aval.shape
    numbers = parameters["dimension_numbers"]
    total = out[numbers.out_spec[0]] * out[numbers.out_spec[1]] * kernel[numbers.rhs_spec[1]]
    total //= parameters["batch_group_count"]
    for i, (before, _) in enumerate(parameters["padding"]):
        starts = np.arange(out[numbers.out_spec[2 + i]]) * parameters["window_strides"][i] - before
        steps = np.arange(kernel[numbers.rhs_spec[2 + i]]) * parameters["rhs_dilation"][i]
        places, spread = np.add.outer(starts, steps), parameters["lhs_dilation"][i]
        last = (images[numbers.lhs_spec[2 + i]] - 1) * spread
        total *= int(np.sum((places >= 0) & (places <= last) & (places % spread == 0)))
    return total


def _bytes(equation: Any) -> int:
    variables = (*equation.invars, *equation.outvars)
    return sum(v.aval.size * v.aval.dtype.itemsize for v in variables)
