"""Capsules from a feature map."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import squash
from capsjax.layers.convolution import conv2d
from capsjax.routing._checks import check_counts


class PrimaryCapsules(nnx.Module):
    """A convolution whose output features are read as `channels` capsules per position.

    Sabour et al. 2017, section 4: 9×9 with stride 2, 32 channels of 8-dimensional capsules.

    Args:
      in_features: channels of the feature map.
      channels: C, the capsules per position.
      pose_size: D.
      kernel_size: of the convolution.
      strides: of the convolution.
      padding: of the convolution: "VALID", "SAME" or the zeros on each side.
      use_bias: of the convolution.
      activation: a function or module of the poses [n, H, W, C, D]: squash, `nnx.LayerNorm(D)`,
        ReLU then a `CapsuleActivation`, the identity.
    """

    def __init__(
        self,
        in_features: int,
        channels: int,
        pose_size: int,
        *,
        kernel_size: int = 9,
        strides: int = 2,
        padding: str | int = "VALID",
        use_bias: bool = True,
        activation: Callable[[jax.Array], jax.Array] = squash,
        rngs: nnx.Rngs,
    ):
        check_counts(channels=channels, pose_size=pose_size)
        self.channels = channels
        self.pose_size = pose_size
        self.activation = activation
        self.conv = conv2d(
            in_features,
            channels * pose_size,
            kernel_size,
            strides=strides,
            padding=padding,
            use_bias=use_bias,
            rngs=rngs,
        )

    def __call__(self, features: Float[Array, "n h w c"]) -> Float[Array, "n h_out w_out C D"]:
        """Returns the capsules' poses on the grid of the convolution."""
        maps = self.conv(features)
        return self.activation(maps.reshape(*maps.shape[:-1], self.channels, self.pose_size))
