"""What every routing procedure returns."""

from typing import NamedTuple

from jaxtyping import Array, Float


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
