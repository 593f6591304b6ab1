"""The routing procedures at the sizes of `experiments/benchmark.py routing`, on one device."""

from collections.abc import Callable
from typing import Any

import jax
from _benchmark.measure import with_gradient
from _benchmark.routing import NO_BUDGET, ROWS

from capsjax.routing import LinearVotes, uniform_routing

# Names of the rows there; uniform routing has the size of the first.
PROCEDURES = {
    "dynamic": "a",
    "inverted_attention": "b",
    "em": "c",
    "attention": "d",
    "dynamic_large": "e",
    "uniform": "a",
}


def procedure(name: str, *, gradient: bool) -> tuple[Callable[..., Any], tuple[Any, ...], int]:
    """A function, the shapes of its arguments, and how many examples they are.

    With `gradient` it is the gradient of a loss by all arguments.
    """
    row = ROWS[PROCEDURES[name]](NO_BUDGET)
    function = row.capsjax
    if name == "uniform":

        def function(poses: jax.Array, kernel: jax.Array) -> jax.Array:
            return uniform_routing(LinearVotes(poses, kernel)).poses

    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in row.arguments)
    if gradient:
        function = with_gradient(function, len(shapes))
    return function, shapes, shapes[0].shape[0]
