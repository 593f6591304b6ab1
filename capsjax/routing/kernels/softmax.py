"""The softmax over parents, in one way on every platform."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


@jax.custom_jvp
def softmax(logits: Array) -> Array:
    """Returns the softmax over the last axis, as that of `jax.nn`, by `exponentials`."""
    values = exponentials(logits, jnp.max(logits, axis=-1, keepdims=True))
    return values / jnp.sum(values, axis=-1, keepdims=True)


@softmax.defjvp
def _jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (logits,), (rate,) = primals, tangents
    shares = softmax(logits)
    return shares, shares * (rate - jnp.sum(shares * rate, axis=-1, keepdims=True))


def exponentials(logits: Array, largest: Array, *, computed_once: bool = False) -> Array:
    """Returns exp(logits − largest), 1 where a large logit is the largest but for rounding.

    XLA may compute logits twice on a CPU, once for their maximum and once for this, and round them
    differently. For logits of 1e30 the two are 1e23 apart: all exponentials would be 0, or one ∞.
    Logits below about 10⁶ are left alone, and so are infinite ones, whose exponentials are NaN.
    A compiled kernel holds its logits (`computed_once`) and needs no such care.
    """
    if computed_once:
        return jnp.exp(logits - largest)
    units = 4 * float(jnp.finfo(logits.dtype).eps) * jnp.abs(largest)  # in the last place
    near = logits > largest - jnp.maximum(units - 1, 0)
    return jnp.exp(jnp.where(near, 0, logits - largest))
