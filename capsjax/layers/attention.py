"""Capsules with attention routing, on a grid and for a whole map."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.bound import bound
from capsjax.layers.transforms import check_poses
from capsjax.routing import Routed, attention_routing, pose_patches
from capsjax.routing._checks import check_counts
from capsjax.routing.patches import Padding


class CapsuleActivation(nnx.Module):
    """u_n = tanh(s_n A_n + a_n), one map for each channel n (Choi et al. 2019, eq. 4)."""

    def __init__(self, channels: int, pose_size: int, *, rngs: nnx.Rngs):
        init = nnx.initializers.glorot_uniform(batch_axis=0)
        self.kernel = nnx.Param(init(rngs.params(), (channels, pose_size, pose_size), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((channels, pose_size), jnp.float32))

    def __call__(self, poses: Float[Array, "*batch N D"]) -> Float[Array, "*batch N D"]:
        channels, pose_size = self.bias.shape
        check_poses(poses, channels=channels, pose_size=pose_size)
        mapped = jnp.einsum("...nd,nde->...ne", poses, self.kernel[...])
        return jnp.tanh(mapped + self.bias[...])


class _AttentionCapsules(nnx.Module):
    """Attention routing and capsule activation of one position (Choi et al. 2019, eq. 5 to 9).

    For every output channel n, with the taps t of the window:

      s̃_m = Σ_t u_tm W_tmn + w_mn
      s   = Σ_m c_m s̃_m                 attention_routing with K_n
      u_n = tanh(s A_n + a_n)           the capsule activation

    Initial values follow Keras, which the authors used: Glorot uniform for each convolution.
    """

    def __init__(self, taps: int, sizes: tuple[int, int, int, int], rngs: nnx.Rngs):
        in_channels, in_pose, out_channels, out_pose = sizes
        self.in_channels, self.in_pose = in_channels, in_pose
        glorot = nnx.initializers.glorot_uniform
        # fan_in = taps · D_in and fan_out = taps · D: a convolution for each pair of channels.
        transforms = glorot(in_axis=2, out_axis=4, batch_axis=(0, 3))
        # A 1×1×D 3-D convolution from N input channels to N logits, for each output channel.
        attention = glorot(in_axis=2, out_axis=3, batch_axis=0)
        of_kernel = (in_channels, taps, in_pose, out_channels, out_pose)
        of_attention = (out_channels, out_pose, in_channels, in_channels)
        self.kernel = nnx.Param(transforms(rngs.params(), of_kernel, jnp.float32))
        self.bias = nnx.Param(jnp.zeros((in_channels, out_channels, out_pose), jnp.float32))
        self.attention = nnx.Param(attention(rngs.params(), of_attention, jnp.float32))
        self.activation = CapsuleActivation(out_channels, out_pose, rngs=rngs)

    def route(self, children: Float[Array, "*batch taps M D_in"]) -> Routed:
        """Returns poses [..., N, D] after the capsule activation, couplings [..., M, N]."""
        # One batched matrix product, a batch per input channel, from taps · D_in to N · D.
        transformed = jnp.einsum("...tmd,mtdne->...mne", children, self.kernel[...])
        out_axes: Any = Routed(-2, -1, None)  # type: ignore[arg-type]
        routed = jax.vmap(attention_routing, in_axes=(-2, 0), out_axes=out_axes)(
            transformed + self.bias[...], self.attention[...]
        )
        return routed._replace(poses=self.activation(routed.poses))


class AttentionConvCapsules(_AttentionCapsules):
    """The conv-caps layer of AR CapsNet (Choi et al. 2019, section 3.3).

    Args:
      in_channels, in_pose: M and D_in, the capsule channels below and the size of their poses.
      out_channels, out_pose: N and D, the same for this layer.
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
        padding: Padding = "SAME",
        rngs: nnx.Rngs,
    ):
        check_counts(kernel_size=kernel_size, strides=strides)
        self.windows = bound(
            pose_patches, window=kernel_size, stride=strides, padding=padding, pose_axes=1
        )
        sizes = in_channels, in_pose, out_channels, out_pose
        super().__init__(kernel_size * kernel_size, sizes, rngs)

    def __call__(self, poses: Float[Array, "*batch H W M D_in"]) -> Routed:
        """Returns poses [..., H_out, W_out, N, D] and couplings [..., H_out, W_out, M, N]."""
        check_poses(poses, in_channels=self.in_channels, in_pose=self.in_pose)
        patches = self.windows(poses)
        *place, children, size = patches.shape
        taps = children // self.in_channels
        return self.route(patches.reshape(*place, taps, self.in_channels, size))


class AttentionFullCapsules(_AttentionCapsules):
    """The fully-conv caps layer: a kernel as large as the map (Choi et al. 2019, section 3.4)."""

    def __init__(
        self,
        grid: tuple[int, int],
        in_channels: int,
        in_pose: int,
        out_channels: int,
        out_pose: int,
        *,
        rngs: nnx.Rngs,
    ):
        self.grid = height, width = grid
        super().__init__(height * width, (in_channels, in_pose, out_channels, out_pose), rngs)

    def __call__(self, poses: Float[Array, "*batch H W M D_in"]) -> Routed:
        """Returns poses [..., N, D] and couplings [..., M, N]."""
        (height, width), in_channels, in_pose = self.grid, self.in_channels, self.in_pose
        check_poses(poses, height=height, width=width, in_channels=in_channels, in_pose=in_pose)
        return self.route(jax.lax.collapse(poses, poses.ndim - 4, -2))
