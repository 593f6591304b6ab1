"""Capsules from a feature map."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import squash
from capsjax.layers.convolution import conv2d


class PrimaryCapsules(nnx.Module):
    """A convolution whose output channels are read as `channels` capsules per position.

    Sabour et al. 2017, section 4: 9×9 with stride 2, 32 channels of 8-dimensional capsules.
    """

    def __init__(
        self,
        in_features: int,
        channels: int,
        pose_size: int,
        *,
        kernel_size: int = 9,
        strides: int = 2,
        padding: str = "VALID",
        activation: Callable[[jax.Array], jax.Array] = squash,
        rngs: nnx.Rngs,
    ):
        self.channels = channels
        self.pose_size = pose_size
        self.activation = activation
        self.conv = conv2d(
            in_features,
            channels * pose_size,
            kernel_size,
            strides=strides,
            padding=padding,
            rngs=rngs,
        )

    def __call__(self, features: Float[Array, "n h w c"]) -> Float[Array, "n children d"]:
        """Poses of all capsules, positions row by row, the channels of a position together."""
        maps = self.conv(features)
        return self.activation(maps.reshape(maps.shape[0], -1, self.pose_size))
