"""Capsules from a feature map."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import squash
from capsjax.layers.convolution import conv2d


class PrimaryCapsules(nnx.Module):
    """A convolution whose output features are read as `channels` capsules per position.

    Sabour et al. 2017, section 4: 9×9 with stride 2, 32 channels of 8-dimensional capsules.

    Args:
      channels, pose_size: C, the capsules per position, and D.
      kernel_size, strides, padding, use_bias: of the convolution, see `conv2d`.
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
        self.channels, self.pose_size, self.activation = channels, pose_size, activation
        options: dict[str, Any] = {"strides": strides, "padding": padding, "use_bias": use_bias}
        features = channels * pose_size
        self.conv = conv2d(in_features, features, kernel_size, rngs=rngs, **options)

    def __call__(self, features: Float[Array, "n h w c"]) -> Float[Array, "n h_out w_out C D"]:
        maps = self.conv(features)
        return self.activation(maps.reshape(*maps.shape[:-1], self.channels, self.pose_size))
