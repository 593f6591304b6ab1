"""The routing procedures at the sizes of `experiments/benchmark.py routing`, on one device."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from _benchmark.measure import with_gradient
from _benchmark.routing import NO_BUDGET, ROWS

from capsjax.routing import LinearVotes, slot_attention, uniform_routing

# Names of the rows there; uniform routing has the size of the first.
PROCEDURES = {
    "dynamic": "a",
    "inverted_attention": "b",
    "em": "c",
    "attention": "d",
    "dynamic_large": "e",
    "uniform": "a",
}
# One iteration of slot attention: examples, inputs N, their size D (that of slots too), slots J.
SLOTS = {"slots_7": (64, 16_384, 64, 7), "slots_11": (32, 4096, 64, 11)}
PLAIN = "_plain"  # after these names: the published formulas, which form keys and values


def procedure(name: str, *, gradient: bool) -> tuple[Callable[..., Any], tuple[Any, ...], int]:
    """Returns a function, the shapes of its arguments, and how many examples they are.

    `name` is one of `PROCEDURES`, or of `SLOTS`, perhaps with `PLAIN` after it. With `gradient` it
    is the gradient of a loss by all arguments.
    """
    if name.removesuffix(PLAIN) in SLOTS:
        n, inputs, size, slots = SLOTS[name.removesuffix(PLAIN)]
        every = (n, inputs, size), (n, slots, size), (size, size), (size, size)
        shapes = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in every)
        attend = _plain_slots if name.endswith(PLAIN) else _slots
        return with_gradient(attend, len(shapes)) if gradient else attend, shapes, n
    row = ROWS[PROCEDURES[name]](NO_BUDGET)
    function = row.capsjax
    if name == "uniform":

        def function(poses: jax.Array, kernel: jax.Array) -> jax.Array:
            return uniform_routing(LinearVotes(poses, kernel)).poses

    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in row.arguments)
    if gradient:
        function = with_gradient(function, len(shapes))
    return function, shapes, shapes[0].shape[0]


def _slots(x: jax.Array, q: jax.Array, w_k: jax.Array, w_v: jax.Array) -> jax.Array:
    return slot_attention(x, q, w_k, w_v).poses


def _plain_slots(x: jax.Array, q: jax.Array, w_k: jax.Array, w_v: jax.Array) -> jax.Array:
    keys, values = x @ w_k, x @ w_v  # [n, N, D]
    logits = jnp.einsum("bjd,bnd->bjn", q / math.sqrt(q.shape[-1]), keys)
    shares = jax.nn.softmax(logits, axis=-2)
    shares /= jnp.sum(shares, axis=-1, keepdims=True) + 1e-8
    return jnp.einsum("bjn,bnd->bjd", shares, values)
