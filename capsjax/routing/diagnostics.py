"""What coupling coefficients tell about a routing."""

import jax.numpy as jnp
import jax.scipy.special
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32
from capsjax.routing._checks import check_floating, check_sizes


def coupling_entropy(coupling: Float[Array, "*batch I J"]) -> Float[Array, "*batch I"]:
    """Returns −Σ_j c_ij log c_ij of each child, in nats (Lin et al. 2018, section 3.1).

    log J where a child is spread evenly over J parents, 0 where it has chosen one. The printed
    formula has a further factor 1/J, which would make layers of different J incomparable.

    Args:
      coupling: what a routing procedure returned; zeros are allowed, count 0 and have gradient 0.
    """
    check_floating("coupling", coupling)
    if coupling.ndim < 2:
        raise ValueError(
            f"coupling must have axes [..., I, J] (children, parents), got shape {coupling.shape}."
        )
    check_sizes("coupling", coupling.shape, ("I (children)", "J (parents)"))
    wide = at_least_float32(coupling)
    # The slope at 0 is infinite: `entr` must not see the zeros, nor their gradient the rest.
    zero = wide == 0
    terms = jax.scipy.special.entr(jnp.where(zero, 1, wide))
    return jnp.where(zero, 0, terms).sum(axis=-1)
