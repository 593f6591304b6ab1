"""The first state of a loop over iterations."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def divided_like(
    sums: Float[Array, "*batch J D"], x: Float[Array, "*#batch I J"]
) -> Float[Array, "*batch I J"]:
    """`x` for every example, divided over devices as `sums` are.

    Under `jax.shard_map`, and on meshes of explicit axes, that is a part of an array's type, and a
    loop must return the type that it was given. Constants alone belong to no device.
    """
    return x + jnp.zeros_like(sums[..., None, :, 0], dtype=x.dtype)
