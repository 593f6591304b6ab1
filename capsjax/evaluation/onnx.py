"""A trained network as an ONNX file, written by jax2onnx.

jax2onnx 0.17.1 does not know this library's primitives, and gets loops, products over several axes
and padding of batches of any size wrong. So the program is first rewritten without them.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array

from capsjax._extras import extra
from capsjax.evaluation.export import scores_of
from capsjax.routing.kernels import adapter

TOLERANCE = 1e-5  # of the scores of random images


def export_onnx(model: nnx.Module, input_shape: tuple[int, int, int]) -> bytes:
    """Makes an ONNX model from uint8 images [b, h, w, c], for any b, to scores [b, classes].

    Raises:
      ModuleNotFoundError: the extra `onnx` is not installed.
      ValueError: the scores of onnxruntime differ from the network's.
    """
    with extra("onnx"):
        import jax2onnx
        import onnxruntime
    scores, images = scores_of(model, input_shape)
    program = jax.make_jaxpr(scores)(images)
    # Traced here, because jax2onnx replaces functions of jax.numpy while it traces.
    rewritten = jax.make_jaxpr(lambda x: _evaluate(program, [x]))(images)
    name = type(model).__name__
    names = {"model_name": name, "input_names": ["images"], "output_names": ["scores"]}
    file = jax2onnx.to_onnx(jaxpr_as_fun(rewritten), [images], **names)
    contents: bytes = file.SerializeToString()
    pixels = np.random.default_rng(0).integers(256, size=(3, *input_shape), dtype=np.uint8)
    session = onnxruntime.InferenceSession(contents, providers=["CPUExecutionProvider"])
    (converted,) = session.run(["scores"], {"images": pixels})
    worst = np.abs(converted - np.asarray(jax.jit(scores)(pixels))).max()
    if not worst <= TOLERANCE:
        raise ValueError(f"as ONNX, scores of this {name} differ by {worst:.2g}")
    return contents


def _evaluate(program: Any, args: Sequence[Any]) -> list[Any]:
    """Runs a jaxpr, equation by equation, in operations that jax2onnx converts correctly."""
    if not isinstance(program, ClosedJaxpr):
        program = ClosedJaxpr(program, ())
    jaxpr = program.jaxpr
    variables = [*jaxpr.constvars, *jaxpr.invars]
    values: dict[Any, Any] = dict(zip(variables, [*program.consts, *args], strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in jaxpr.eqns:
        outputs = _apply(equation, list(map(read, equation.invars)))
        values |= zip(equation.outvars, outputs, strict=True)
    return list(map(read, jaxpr.outvars))


def _apply(equation: Any, inputs: list[Any]) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params
    match primitive.name:
        case "platform_index":
            return [next(i for i, names in enumerate(params["platforms"]) if names is None)]
        case "cond" if isinstance(inputs[0], int):
            return _evaluate(params["branches"][inputs[0]], inputs[1:])
        case "scan":
            return _unrolled(inputs, **params)
        case "dot_general":
            return [_product(*inputs, **params)]
        case "pad":
            return [_padded(*inputs, **params)]
    for called in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if called in params and primitive.name != "while":
            return _evaluate(params[called], inputs)
    if function := adapter.portable(primitive, [v.aval for v in equation.invars], params):
        return _evaluate(jax.make_jaxpr(function)(*inputs), inputs)
    outputs = primitive.bind(*inputs, **params)
    return outputs if primitive.multiple_results else [outputs]


def _unrolled(
    inputs: list[Any],
    *,
    jaxpr: Any,
    length: int,
    reverse: bool,
    num_consts: int,
    num_carry: int,
    **_: Any,
) -> list[Any]:
    """Writes out `scan`, a loop whose number of steps is known."""
    consts, carry = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]
    stacked = inputs[num_consts + num_carry :]
    results = []
    for i in reversed(range(length)) if reverse else range(length):
        outputs = _evaluate(jaxpr, [*consts, *carry, *(x[i] for x in stacked)])
        carry = outputs[:num_carry]
        results.append(outputs[num_carry:])
    if reverse:
        results.reverse()
    return [*carry, *(jnp.stack(each) for each in zip(*results, strict=True))]


def _product(a: Array, b: Array, *, dimension_numbers: Any, **options: Any) -> Array:
    """Computes `dot_general` as one product of matrices [n, rows, k] and [n, k, columns]."""
    (a_sum, b_sum), (a_batch, b_batch) = dimension_numbers
    a_rows = [axis for axis in range(a.ndim) if axis not in (*a_sum, *a_batch)]
    b_columns = [axis for axis in range(b.ndim) if axis not in (*b_sum, *b_batch)]

    def merged(x: Array, *groups: Sequence[int]) -> Array:
        order = [axis for group in groups for axis in group]
        sizes = [math.prod(x.shape[axis] for axis in group) for group in groups]
        return x.transpose(order).reshape(sizes)

    left, right = merged(a, a_batch, a_rows, a_sum), merged(b, b_batch, b_sum, b_columns)
    numbers = (((2,), (1,)), ((0,), (0,)))
    options.pop("out_sharding", None)
    out = lax.dot_general(left, right, numbers, **options)
    kept = [*(a.shape[i] for i in (*a_batch, *a_rows)), *(b.shape[i] for i in b_columns)]
    return out.reshape(kept)


def _padded(x: Array, value: Any, *, padding_config: Any) -> Array:
    """Computes `pad` by concatenation. Forward passes have no interior or negative padding."""
    for axis, (before, after, interior) in enumerate(padding_config):
        if interior or before < 0 or after < 0:
            raise NotImplementedError(f"no ONNX for padding {padding_config}")

        def edge(size: int, axis: int = axis, x: Array = x) -> list[Array]:
            shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            return [jnp.broadcast_to(value, shape)] if size else []

        if before or after:
            x = jnp.concatenate([*edge(int(before)), x, *edge(int(after))], axis)
    return x
