"""Where parameters come from."""

from typing import Any

from flax import nnx
from jaxtyping import PRNGKeyArray


def params_key(rngs: nnx.Rngs) -> PRNGKeyArray:
    """Returns the next key for parameters; raises TypeError as `check_rngs`."""
    check_rngs(rngs)
    return rngs.params()


def check_rngs(rngs: Any) -> None:
    """Raises TypeError unless `rngs` are `nnx.Rngs`."""
    if not isinstance(rngs, nnx.Rngs):
        raise TypeError(
            f"rngs must be flax.nnx.Rngs, got {type(rngs).__name__}: nnx.Rngs(0) makes them of "
            "seed 0"
        )
