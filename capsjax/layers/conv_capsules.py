"""Capsules on a grid, for which the capsules of a k×k window vote."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.rngs import params_key
from capsjax.layers.transforms import (
    Form,
    as_matrices,
    check_poses,
    kernel_shape,
    unit_sums,
)
from capsjax.routing import Routed, WindowVotes, dynamic_routing, pose_patches
from capsjax.routing._checks import check_counts
from capsjax.routing.patches import Padding


class ConvCapsules(nnx.Module):
    """Convolutional capsules: dense capsules over windows, with one kernel for all positions.

    Hinton et al. 2018; Tsai et al. 2020, tables 6 to 11. The I = k·k·C children of a position are
    in the order (row, column, channel). With SAME, zeros around the grid are children too.

    Args:
      in_channels: C, the capsules per position below.
      in_pose: D_in, the size of their poses.
      out_channels: J, the capsules per position here.
      out_pose: D_out, the size of the poses here.
      kernel_size: k.
      strides: step between windows.
      padding: "VALID" or "SAME".
      form: "vector", W [I, D_in, J, D_out], or "matrix", W [I, √D, J, √D] for poses of √D×√D.
      routing, use_bias, kernel_init: as in `DenseCapsules`.

    Raises:
      TypeError: a size is not a Python int.
      ValueError: a size < 1, or one that `form` cannot have; when called, a grid smaller than the
        window, or poses of other sizes.
    """

    def __init__(
        self,
        in_channels: int,
        in_pose: int,
        out_channels: int,
        out_pose: int,
        *,
        kernel_size: int = 3,
        strides: int = 1,
        padding: Padding = "VALID",
        form: Form = "vector",
        routing: Callable[..., Routed] = dynamic_routing,
        use_bias: bool = False,
        kernel_init: nnx.Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        check_counts(kernel_size=kernel_size, strides=strides)
        self.in_channels = in_channels
        self.in_pose = in_pose
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding
        self.routing = routing
        num_children = kernel_size * kernel_size * in_channels
        shape = kernel_shape(num_children, in_pose, out_channels, out_pose, form)
        kernel_init = kernel_init or unit_sums(num_children)
        self.kernel = nnx.Param(kernel_init(params_key(rngs), shape, jnp.float32))
        self.bias = (
            nnx.Param(jnp.full((out_channels, out_pose), 0.1, jnp.float32))
            if use_bias
            else nnx.data(None)
        )

    def votes(self, poses: Float[Array, "*batch H W C D"]) -> WindowVotes:
        """The votes v_ij of every window of `poses`, not yet computed; batch axes [..., H', W']."""
        check_poses(poses, in_channels=self.in_channels, in_pose=self.in_pose)
        return WindowVotes(
            as_matrices(poses, self.kernel[...]),
            self.kernel[...],
            self.kernel_size,
            stride=self.strides,
            padding=self.padding,
        )

    def child_activations(
        self, activations: Float[Array, "*batch H W C"]
    ) -> Float[Array, "*batch H_out W_out I"]:
        """The activations of the children of every position, in the order of the votes."""
        return pose_patches(
            activations,
            self.kernel_size,
            stride=self.strides,
            padding=self.padding,
            pose_axes=0,
        )

    def __call__(self, poses: Float[Array, "*batch H W C D"], *state: Array | None) -> Routed:
        """Routes the capsules of every window to the parents of its position.

        Args:
          poses: of the children.
          *state: what the procedure takes after the votes, with axes [..., H_out, W_out, …].

        Returns:
          Poses [..., H_out, W_out, J, D] and couplings [..., H_out, W_out, I, J].
        """
        bias = {} if self.bias is None else {"bias": self.bias[...]}
        return self.routing(self.votes(poses), *state, **bias)
