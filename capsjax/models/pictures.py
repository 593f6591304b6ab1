"""A CapsNet for larger colour images. Not from any paper: CapsNet's capsules between convolutions.

In CapsNet (Sabour et al. 2017) the number of capsules and the decoder grow with the image. Here
convolutions of stride 2 reduce any image to a grid of at most 8×8, and the decoder enlarges it.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers import ConvDecoder, ConvNorm, PrimaryCapsules
from capsjax.layers.bound import bound
from capsjax.models.config import Normalization, positive, scalable, scaled
from capsjax.models.model import Network, Pixels
from capsjax.models.reconstruction import CapsuleChain, CapsuleSizes
from capsjax.routing import dynamic_routing

GRID = 8  # rows or columns, at most


@dataclass(frozen=True)
class PictureCapsNetConfig(Normalization, CapsuleSizes):
    """Sizes of a PictureCapsNet.

    Attributes:
      features: channels of the first convolution; doubled with each halving, up to four times.
    """

    features: int = positive(32)
    primary_channels: int = scalable(16)


class PictureCapsNet(CapsuleChain):
    """3×3 convolutions of stride 2 below CapsNet's capsules, and a convolutional decoder."""

    map_name = "convs"

    def build(self, config: PictureCapsNetConfig, rngs: nnx.Rngs) -> None:
        height, width, _ = self.input_shape
        halvings = max(1, math.ceil(math.log2(max(height, width) / GRID)))
        features = [scaled(config.features * min(2**i, 4), config.width) for i in range(halvings)]
        rows, columns = (-(-side // 2**halvings) for side in (height, width))
        pairs = pairwise([self.input_shape[-1], *features])
        convs = [ConvNorm(n, m, 3, strides=2, padding=1, rngs=rngs) for n, m in pairs]
        self.convs = nnx.List(convs)
        sizes = features[-1], config.primary_channels, config.primary_pose
        self.primary = PrimaryCapsules(*sizes, kernel_size=3, strides=1, padding="SAME", rngs=rngs)
        routing = bound(dynamic_routing, num_iterations=config.num_iterations)
        children = rows * columns * config.primary_channels
        self.build_classes(children, config, rngs, routing=routing)
        widths = [features[-1], *reversed(features)]
        self.decoder = ConvDecoder(
            self.num_classes, config.class_pose, self.input_shape, features=widths, rngs=rngs
        )

    def feature_map(self, images: Pixels) -> Float[Array, "n rows columns f"]:
        x = images
        for conv in self.convs:
            x = nnx.relu(conv(x))
        return x


NETWORKS = {
    "picture_capsnet_64": Network(PictureCapsNet, PictureCapsNetConfig(), (64, 64, 3)),
    "picture_capsnet_96": Network(PictureCapsNet, PictureCapsNetConfig(), (96, 96, 3)),
}
