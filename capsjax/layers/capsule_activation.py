"""An activation of whole capsules."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.rngs import params_key
from capsjax.layers.transforms import check_poses
from capsjax.routing._checks import check_counts


class CapsuleActivation(nnx.Module):
    """u_n = tanh(s_n A_n + a_n), one map for each channel n (Choi et al. 2019, eq. 4).

    The paper writes it as a 1×1 convolution of each capsule channel. Unlike squash it turns the
    pose; its length is at most √D.

    Args:
      channels: N.
      pose_size: D.
    """

    def __init__(self, channels: int, pose_size: int, *, rngs: nnx.Rngs):
        check_counts(channels=channels, pose_size=pose_size)
        self.channels = channels
        self.pose_size = pose_size
        init = nnx.initializers.glorot_uniform(batch_axis=0)
        self.kernel = nnx.Param(
            init(params_key(rngs), (channels, pose_size, pose_size), jnp.float32)
        )
        self.bias = nnx.Param(jnp.zeros((channels, pose_size), jnp.float32))

    def __call__(self, poses: Float[Array, "*batch N D"]) -> Float[Array, "*batch N D"]:
        check_poses(poses, channels=self.channels, pose_size=self.pose_size)
        mapped = jnp.einsum("...nd,nde->...ne", poses, self.kernel[...])
        return jnp.tanh(mapped + self.bias[...])
