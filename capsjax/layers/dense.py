"""Capsules that every capsule below votes for."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.rngs import params_key
from capsjax.layers.transforms import Form, check_poses, kernel_shape, linear_votes, unit_sums
from capsjax.routing import LinearVotes, Routed, dynamic_routing


class DenseCapsules(nnx.Module):
    """Fully connected capsules: v_ij = P_i W_ij, then a routing procedure.

    Sabour et al. 2017, section 4 (DigitCaps). `routing(votes, …)` is any procedure of
    `capsjax.routing`, its options bound with `functools.partial`, or a module around one that holds
    what it learns (`InvertedAttention`, `EMRouting`).

    Args:
      num_children: I, the number of capsules below.
      in_pose: D_in, the size of their poses.
      num_parents: J, the number of capsules here.
      out_pose: D_out, the size of the poses here.
      form: "vector", W [I, D_in, J, D_out], or "matrix", W [I, √D, J, √D] for poses of √D×√D.
      shared: one W_j for all children, W [1, …] (the transform of Aff-CapsNet, Gu et al. 2021).
      routing: the procedure.
      use_bias: add a learned bias to Σ_i c_ij v_ij (the released code of Sabour et al. has one);
        for procedures that take `bias`.
      kernel_init: of W; see `unit_sums` for the default.

    Raises:
      TypeError: a size is not a Python int.
      ValueError: a size < 1, or one that `form` cannot have; when called, poses of other sizes.
    """

    def __init__(
        self,
        num_children: int,
        in_pose: int,
        num_parents: int,
        out_pose: int,
        *,
        form: Form = "vector",
        shared: bool = False,
        routing: Callable[..., Routed] = dynamic_routing,
        use_bias: bool = False,
        kernel_init: nnx.Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        self.num_children = num_children
        self.in_pose = in_pose
        self.routing = routing
        shape = kernel_shape(num_children, in_pose, num_parents, out_pose, form)
        if shared:
            shape = (1, *shape[1:])
        kernel_init = kernel_init or unit_sums(num_children)
        self.kernel = nnx.Param(kernel_init(params_key(rngs), shape, jnp.float32))
        self.bias = (
            nnx.Param(jnp.full((num_parents, out_pose), 0.1, jnp.float32))
            if use_bias
            else nnx.data(None)
        )

    def votes(self, poses: Float[Array, "*batch I D"]) -> LinearVotes:
        """The votes v_ij of `poses`, not yet computed."""
        check_poses(poses, num_children=self.num_children, in_pose=self.in_pose)
        return linear_votes(poses, self.kernel[...])

    def __call__(self, poses: Float[Array, "*batch I D"], *state: Array | None) -> Routed:
        """Routes `poses` to the parents.

        Args:
          poses: of the children.
          *state: what the procedure takes after the votes, such as previous poses.

        Returns:
          Poses [..., J, D] and couplings [..., I, J].
        """
        bias = {} if self.bias is None else {"bias": self.bias[...]}
        return self.routing(self.votes(poses), *state, **bias)
