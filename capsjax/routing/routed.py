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
    """

    poses: Float[Array, "*batch J D"]
    coupling: Float[Array, "*batch I J"]
    activations: Float[Array, "*batch J"] | None = None
