"""Losses of one example; batches by `jax.vmap`."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32


def margin_loss(
    lengths: Float[Array, "classes"],
    label: Float[Array, "classes"],
    *,
    m_plus: float = 0.9,
    m_minus: float = 0.1,
    down_weight: float = 0.5,
) -> Float[Array, ""]:
    """Σ_k T_k max(0, m⁺ − |p_k|)² + λ (1 − T_k) max(0, |p_k| − m⁻)²   (Sabour et al. 2017, eq. 4).

    Args:
      lengths: |p_k|, the lengths of the class capsules.
      label: T_k, 1 for every class that is present, else 0.
      m_plus: the length wanted of a present class.
      m_minus: the length allowed to an absent class.
      down_weight: λ, the weight of absent classes.
    """
    lengths, label = at_least_float32(lengths), at_least_float32(label)
    present = jnp.square(jnp.maximum(0, m_plus - lengths))
    absent = jnp.square(jnp.maximum(0, lengths - m_minus))
    return jnp.sum(label * present + down_weight * (1 - label) * absent)


def reconstruction_loss(
    reconstruction: Float[Array, "h w c"], image: Float[Array, "h w c"]
) -> Float[Array, ""]:
    """Sum of squared differences of the pixels (Sabour et al. 2017, section 4.1)."""
    difference = at_least_float32(reconstruction) - at_least_float32(image)
    return jnp.sum(jnp.square(difference))
