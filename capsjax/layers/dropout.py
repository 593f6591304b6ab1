"""Dropout with one key per example."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def dropout(
    x: Float[Array, "n *shape"], keys: Key[Array, "n"] | None, *, keep: float
) -> Float[Array, "n *shape"]:
    """Sets each number of `x` to 0 with probability 1 − `keep`, else divides it by `keep`.

    What an example loses depends on its own key alone, not on the batch or device it is in.
    Without keys, or with `keep` 1, there is no dropout.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be in (0, 1], got {keep}; it is what is kept, not dropped")
    if keys is None or keep == 1:
        return x
    if keys.shape != x.shape[:1]:
        raise ValueError(f"keys must be {x.shape[0]}, from jax.random.split, got {keys.shape}")
    kept = jax.vmap(lambda key: jax.random.bernoulli(key, keep, x.shape[1:]))(keys)
    return jnp.where(kept, x / keep, 0)
