"""What every routing procedure returns, and what its coupling tells."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.scipy.special
from jax import export
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32, check_floating


class Routed(NamedTuple):
    """The outcome of routing I children to J parents.

    Attributes:
      poses: the parents' poses p_j, in the type of the votes.
      coupling: the coefficients c_ij that made them, in at least float32. XLA removes their
        computation where they are not used.
      activations: the parents' activations, for procedures that have them (EM), else None.

    `attention_routing` has one parent for each call: its arrays lack the axis J.
    """

    poses: Float[Array, "*batch J D"] | Float[Array, "*batch D"]
    coupling: Float[Array, "*batch I J"] | Float[Array, "*batch I"]
    activations: Float[Array, "*batch J"] | None = None


export.register_namedtuple_serialization(Routed, serialized_name="capsjax.routing.Routed")


def coupling_entropy(coupling: Float[Array, "*batch I J"]) -> Float[Array, "*batch I"]:
    """Returns −Σ_j c_ij log c_ij of each child, in nats (Lin et al. 2018, section 3.1).

    log J where a child is spread evenly over J parents, 0 where it has chosen one. The printed
    formula has a further factor 1/J, which would make layers of different J incomparable.

    Args:
      coupling: what a routing procedure returned; zeros contribute 0 and have gradient 0.
    """
    check_floating("coupling", coupling)
    wide = at_least_float32(coupling)
    # The slope at 0 is infinite: `entr` must not see the zeros, nor their gradient the rest.
    zero = wide == 0
    terms = jax.scipy.special.entr(jnp.where(zero, 1, wide))
    return jnp.where(zero, 0, terms).sum(axis=-1)
