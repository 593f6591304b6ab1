"""Capsules that vote through learned transforms: fully connected, or on a grid."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.bound import bound
from capsjax.layers.transforms import Form, as_matrices, check_poses, kernel_shape, unit_sums
from capsjax.routing import LinearVotes, Routed, WindowVotes, dynamic_routing, pose_patches
from capsjax.routing._checks import check_counts
from capsjax.routing.patches import Padding


class DenseCapsules(nnx.Module):
    """Fully connected capsules: v_ij = P_i W_ij, then a routing procedure.

    Sabour et al. 2017, section 4 (DigitCaps). `routing(votes, …)` is any procedure of
    `capsjax.routing`, its options bound with `functools.partial`, or a module around one that holds
    what it learns (`InvertedAttention`, `EMRouting`).

    Args:
      num_children, in_pose: I and D_in, the capsules below and the size of their poses.
      num_parents, out_pose: J and D_out, the same for this layer.
      form: "vector", W [I, D_in, J, D_out], or "matrix", W [I, √D, J, √D] for poses of √D×√D.
      shared: one W_j for all children, W [1, …] (the transform of Aff-CapsNet, Gu et al. 2021).
      routing: the procedure.
      use_bias: add a learned bias, initially 0.1, to Σ_i c_ij v_ij (as in the released code of
        Sabour et al.); for procedures that take `bias`.
      kernel_init: of W; see `unit_sums` for the default.
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
        self.num_children, self.in_pose, self.routing = num_children, in_pose, routing
        shape = kernel_shape(num_children, in_pose, num_parents, out_pose, form)
        if shared:
            shape = (1, *shape[1:])
        kernel_init = kernel_init or unit_sums(num_children)
        self.kernel = nnx.Param(kernel_init(rngs.params(), shape, jnp.float32))
        self.bias = nnx.data(None)
        if use_bias:
            self.bias = nnx.Param(jnp.full((num_parents, out_pose), 0.1, jnp.float32))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, bound.of(value) if name == "routing" else value)

    def votes(self, poses: Float[Array, "*batch I D"]) -> LinearVotes:
        """Returns the votes v_ij of `poses`, not yet computed."""
        check_poses(poses, num_children=self.num_children, in_pose=self.in_pose)
        kernel = self.kernel[...]
        return LinearVotes(as_matrices(poses, kernel), kernel)

    def __call__(self, poses: Float[Array, "*batch I D"], *state: Array | None) -> Routed:
        """Returns poses [..., J, D] and couplings [..., I, J].

        `state` is what the procedure takes after the votes, such as previous poses.
        """
        bias = {} if self.bias is None else {"bias": self.bias[...]}
        return self.routing(self.votes(poses), *state, **bias)


class ConvCapsules(DenseCapsules):
    """Convolutional capsules: dense capsules over windows, with one kernel for all positions.

    Hinton et al. 2018; Tsai et al. 2020, tables 6 to 11. The I = k·k·C children of a position are
    in the order (row, column, channel). With SAME, zeros around the grid are children too. Takes
    poses [..., H, W, C, D_in]; returns poses [..., H_out, W_out, J, D_out] and couplings
    [..., H_out, W_out, I, J].

    Args:
      in_channels, in_pose: C and D_in, the capsules per position below and the size of their poses.
      out_channels, out_pose: J and D_out, the same for this layer.
      **options: `form`, `routing`, `use_bias`, `kernel_init` and `rngs`, as in `DenseCapsules`.
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
        **options: Any,
    ):
        check_counts(kernel_size=kernel_size, strides=strides)
        children = kernel_size * kernel_size * in_channels
        super().__init__(children, in_pose, out_channels, out_pose, **options)
        self.in_channels = in_channels
        self.kernel_size, self.strides, self.padding = kernel_size, strides, padding

    def votes(self, poses: Float[Array, "*batch H W C D"]) -> WindowVotes:
        """Returns the votes v_ij of all windows, not yet computed; batch [..., H_out, W_out]."""
        check_poses(poses, in_channels=self.in_channels, in_pose=self.in_pose)
        kernel, k = self.kernel[...], self.kernel_size
        grid = as_matrices(poses, kernel)
        return WindowVotes(grid, kernel, k, stride=self.strides, padding=self.padding)

    def child_activations(
        self, activations: Float[Array, "*batch H W C"]
    ) -> Float[Array, "*batch H_out W_out I"]:
        """Returns the activations of the children of every position, in the order of the votes."""
        return pose_patches(
            activations, self.kernel_size, stride=self.strides, padding=self.padding, pose_axes=0
        )
