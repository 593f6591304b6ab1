"""Capsules that every capsule below votes for."""

import math
from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.routing import LinearVotes, Routed, dynamic_routing


class DenseCapsules(nnx.Module):
    """Fully connected capsules: v_ij = u_i W_ij, then a routing procedure.

    Sabour et al. 2017, section 4 (DigitCaps). `routing(votes, bias=...)` is any procedure of
    `capsjax.routing` that takes votes alone; options are bound with `functools.partial`.

    Args:
      num_children: I, the number of capsules below.
      in_pose: size of their poses.
      num_parents: J, the number of capsules here.
      out_pose: size of the poses here.
      routing: the procedure.
      kernel_init: of W [I, D_in, J, D_out]; by default a truncated normal with standard deviation
        J / √(I·D_out), so that with uniform couplings and children of length 1 the sums
        Σ_i c_ij v_ij have length about 1. Where they start much shorter, squash, quadratic near
        0, lets next to no gradient through, and stacked layers do not learn.
      use_bias: add a learned bias to Σ_i c_ij v_ij (the released code of the paper has one).
    """

    def __init__(
        self,
        num_children: int,
        in_pose: int,
        num_parents: int,
        out_pose: int,
        *,
        routing: Callable[..., Routed] = dynamic_routing,
        use_bias: bool = False,
        kernel_init: nnx.Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        self.routing = routing
        if kernel_init is None:
            kernel_init = nnx.initializers.truncated_normal(
                num_parents / math.sqrt(num_children * out_pose)
            )
        shape = (num_children, in_pose, num_parents, out_pose)
        self.kernel = nnx.Param(kernel_init(rngs.params(), shape, jnp.float32))
        self.bias = (
            nnx.Param(jnp.full((num_parents, out_pose), 0.1, jnp.float32))
            if use_bias
            else nnx.data(None)
        )

    def __call__(self, poses: Float[Array, "*batch children d"]) -> Routed:
        """Routes `poses` to the parents: poses [..., J, D] and couplings [..., I, J]."""
        votes = LinearVotes(poses[..., None, :], self.kernel[...])
        return self.routing(votes, bias=None if self.bias is None else self.bias[...])
