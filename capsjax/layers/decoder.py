"""From class poses back to an image."""

import math
from collections.abc import Sequence
from itertools import pairwise

from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import mask_poses


class Decoder(nnx.Module):
    """Three dense layers from masked class poses to an image in [0, 1].

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
        self.image_shape = image_shape
        sizes = [num_classes * pose_size, *features, math.prod(image_shape)]
        self.layers = nnx.List([nnx.Linear(n, m, rngs=rngs) for n, m in pairwise(sizes)])

    def __call__(
        self, poses: Float[Array, "n classes d"], mask: Float[Array, "n classes"]
    ) -> Float[Array, "n h w c"]:
        """Reconstructs what the classes in `mask` (one-hot) saw."""
        x = mask_poses(poses, mask)
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        pixels = nnx.sigmoid(self.layers[-1](x))
        return pixels.reshape(-1, *self.image_shape)
