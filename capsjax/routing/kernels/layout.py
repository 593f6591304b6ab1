"""Tells the TPU compiler in which order to keep an array."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array

from capsjax.routing.kernels import adapter


def row_major(x: Array) -> Array:
    """Returns `x`, kept on a TPU with its last axis on the lanes, as it is on all other platforms.

    XLA carries the order that a kernel wants back into whatever made the operand. Where that cuts
    windows from a grid, it costs many times what it saves: with a small batch on the lanes, three
    quarters of each register are empty.
    """
    return row_major_p.bind(x)


def _choose(target: adapter.Target, avals: Sequence[Any]) -> adapter.Choice:
    if target.platform == "tpu" and not (target.divided or target.exported) and avals[0].ndim:
        layout = Layout(tuple(range(avals[0].ndim)))
        return lambda x: with_layout_constraint(x, layout), True
    return lambda x: x, False


def _batch(args: Sequence[Array], axes: Sequence[int]) -> tuple[Array, int]:
    return row_major(jnp.moveaxis(args[0], axes[0], 0)), 0


def _jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Any]:
    (tangent,) = tangents
    return row_major(primals[0]), tangent if adapter.is_zero(tangent) else row_major(tangent)


def _transpose(cotangent: Any, _: Any) -> list[Any]:
    return [None if adapter.is_zero(cotangent) else row_major(cotangent)]


row_major_p = adapter.define("capsjax_row_major", abstract=lambda aval: aval, choose=_choose)
adapter.set_rules(row_major_p, jvp=_jvp, batch=_batch, transpose=_transpose)
