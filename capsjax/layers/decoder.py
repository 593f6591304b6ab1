"""Reconstructing an image from class poses."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import check_array, mask_poses
from capsjax.layers.convolution import conv2d
from capsjax.layers.transforms import check_poses


class Decoder(nnx.Module):
    """Dense layers from class poses to an image [height, width, channels] in [0, 1].

    Sabour et al. 2017, figure 2: 512 and 1024 units with ReLU, then a sigmoid per pixel.
    """

    def __init__(
        self,
        num_classes: int,
        pose_size: int,
        image_shape: tuple[int, int, int],
        *,
        features: Sequence[int] = (512, 1024),
        rngs: nnx.Rngs,
    ):
        self.num_classes, self.pose_size = num_classes, pose_size
        self.image_shape = image_shape
        self.build(num_classes * pose_size, features, rngs)

    def build(self, inputs: int, features: Sequence[int], rngs: nnx.Rngs) -> None:
        sizes = [inputs, *features, math.prod(self.image_shape)]
        self.layers = nnx.List([nnx.Linear(n, m, rngs=rngs) for n, m in pairwise(sizes)])

    def pixels(self, x: Float[Array, "*batch classes_d"]) -> Float[Array, "*pixels"]:
        """Returns the pixels for masked, flattened poses; `__call__` reshapes them to images."""
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return nnx.sigmoid(self.layers[-1](x))

    def __call__(
        self,
        poses: Float[Array, "n classes d"],
        mask: Float[Array, "n *targets classes"] | None = None,
    ) -> Float[Array, "n *targets h w c"]:
        """Reconstructs the objects of the classes in `mask` ("conditional" in Gu et al. 2021).

        The mask is 1 for the classes to be seen, else 0; with several masks for an image there are
        as many reconstructions. Without a mask the poses of all classes are seen ("normal").
        """
        check_poses(poses, num_classes=self.num_classes, pose_size=self.pose_size)
        if mask is None:
            mask = jnp.ones(poses.shape[:-1], poses.dtype)
        check_array("mask", mask)
        for _ in range(mask.ndim - 2):
            poses = poses[:, None]
        seen = mask_poses(poses, mask)
        return self.pixels(seen).reshape(*seen.shape[:-1], *self.image_shape)


class ConvDecoder(Decoder):
    """Convolutions from class poses to an image in [0, 1].

    A dense layer makes a small map. Each step repeats its pixels to twice the height and width and
    convolves 3×3, with ReLU; the last convolution gives the channels, with a sigmoid. `features`
    are the channels of the small map and after each doubling.
    """

    def build(self, inputs: int, features: Sequence[int], rngs: nnx.Rngs) -> None:
        height, width, channels = self.image_shape
        scale = 2 ** (len(features) - 1)
        # Rounded up; `pixels` crops the image.
        self.map_shape = (-(-height // scale), -(-width // scale), features[0])
        he_normal = nnx.initializers.he_normal()
        size = math.prod(self.map_shape)
        self.dense = nnx.Linear(inputs, size, kernel_init=he_normal, rngs=rngs)
        convolution = partial(conv2d, kernel_size=3, padding="SAME", rngs=rngs)
        convs = [convolution(n, m, kernel_init=he_normal) for n, m in pairwise(features)]
        self.convs = nnx.List(convs)
        self.out = convolution(features[-1], channels)

    def pixels(self, x: Float[Array, "*batch classes_d"]) -> Float[Array, "*pixels"]:
        x = nnx.relu(self.dense(x)).reshape(-1, *self.map_shape)
        for conv in self.convs:
            x = nnx.relu(conv(jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)))
        height, width, _ = self.image_shape
        return nnx.sigmoid(self.out(x))[:, :height, :width]
