"""Reconstructing a larger image from class poses."""

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.convolution import conv2d
from capsjax.layers.decoder import check_image_shape, masked_poses
from capsjax.layers.rngs import check_rngs
from capsjax.layers.transforms import check_poses
from capsjax.routing._checks import check_counts

_INIT = nnx.initializers.he_normal()


class ConvDecoder(nnx.Module):
    """Convolutions from class poses to an image in [0, 1].

    A dense layer makes a small map. Each step repeats its pixels to twice the height and width and
    convolves 3×3, with ReLU; the last convolution gives the channels, with a sigmoid. Unlike
    `Decoder`, whose last layer has a weight for each hidden unit and pixel, it grows with the
    number of pixels hardly at all.

    Args:
      num_classes: number of class poses.
      pose_size: D, their size.
      image_shape: height, width, channels.
      features: channels of the small map and after each doubling.
    """

    def __init__(
        self,
        num_classes: int,
        pose_size: int,
        image_shape: tuple[int, int, int],
        *,
        features: Sequence[int],
        rngs: nnx.Rngs,
    ):
        check_rngs(rngs)
        check_counts(
            num_classes=num_classes,
            pose_size=pose_size,
            image_shape=image_shape,
            features=features,
        )
        if not features:
            raise ValueError("features must have the channels of at least one layer, got none")
        check_image_shape(image_shape)
        height, width, channels = image_shape
        self.num_classes = num_classes
        self.pose_size = pose_size
        scale = 2 ** (len(features) - 1)
        self.image_shape = image_shape
        # Rounded up: what is too much at the end is cut off.
        self.map_shape = (-(-height // scale), -(-width // scale), features[0])
        size = self.map_shape[0] * self.map_shape[1] * self.map_shape[2]
        self.dense = nnx.Linear(num_classes * pose_size, size, kernel_init=_INIT, rngs=rngs)
        self.convs = nnx.List(
            [
                conv2d(n, m, 3, padding="SAME", kernel_init=_INIT, rngs=rngs)
                for n, m in pairwise(features)
            ]
        )
        self.out = conv2d(features[-1], channels, 3, padding="SAME", rngs=rngs)

    def __call__(
        self,
        poses: Float[Array, "n classes d"],
        mask: Float[Array, "n *targets classes"] | None = None,
    ) -> Float[Array, "n *targets h w c"]:
        """Reconstructs the objects of the classes in `mask`, as `Decoder` does."""
        check_poses(poses, num_classes=self.num_classes, pose_size=self.pose_size)
        x = nnx.relu(self.dense(masked_poses(poses, mask)))
        targets = x.shape[:-1]
        x = x.reshape(-1, *self.map_shape)
        for conv in self.convs:
            x = nnx.relu(conv(jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)))
        height, width, _ = self.image_shape
        pixels = nnx.sigmoid(self.out(x))[:, :height, :width]
        return pixels.reshape(*targets, *self.image_shape)
