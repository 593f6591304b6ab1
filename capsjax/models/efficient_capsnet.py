"""Efficient-CapsNet (Mazzia et al. 2021): small, and routed in one pass by self-attention."""

from dataclasses import dataclass, replace
from functools import partial

from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers import DepthwiseCapsules, SelfAttentionRouting
from capsjax.layers.backbones import batch_norm
from capsjax.models.config import not_negative, one_of, positive, scaled
from capsjax.models.grids import Window, convolutions, grids
from capsjax.models.model import Network, Pixels
from capsjax.models.reconstruction import CapsuleChain, Reconstruction


@dataclass(frozen=True)
class EfficientCapsNetConfig(Reconstruction):
    """Sizes of an Efficient-CapsNet; the defaults are those for MNIST.

    Attributes:
      features: channels of each convolution; the last are a multiple of `primary_pose`.
      kernel_sizes: of each convolution; no padding.
      strides: of each convolution.
      normalization: after each activation: "batch" of ReLU, or "instance" of a leaky ReLU.
      primary_kernel: rows and columns of the map that each primary capsule sees; 0 for all.
      primary_pose: size of the primary capsules.
      class_pose: size of the class capsules.
    """

    features: tuple[int, ...] = positive((32, 64, 64, 128))
    kernel_sizes: tuple[int, ...] = positive((5, 3, 3, 3))
    strides: tuple[int, ...] = positive((1, 1, 1, 2))
    normalization: str = one_of("batch", "instance")
    primary_kernel: int = not_negative(0)
    primary_pose: int = positive(8)
    class_pose: int = positive(16)

    PER_LAYER = ("features", "kernel_sizes", "strides")


class EfficientCapsNet(CapsuleChain):
    """Convolutions, a few primary capsules that see the whole map, class capsules, a decoder.

    161,824 parameters for 28×28×1 and ten classes, without the decoder. The decoder for smallNORB
    is that of the others, not the released code's convolutional one.
    """

    def build(self, config: EfficientCapsNetConfig, rngs: nnx.Rngs) -> None:
        *below, last = config.features
        pose_size = config.primary_pose
        num_capsules = scaled(last // pose_size, config.width)
        features = [*scaled(tuple(below), config.width), num_capsules * pose_size]
        windows = [Window(*each) for each in zip(config.kernel_sizes, config.strides, strict=True)]
        k = config.primary_kernel
        seen = grids(self.input_shape, [*windows, Window(k)] if k else windows)[len(windows) - 1]
        self.leaky = config.normalization == "instance"
        if k and max(seen) > k + 1:  # the published 6×6 map is cut to 5×5
            raise ValueError(f"primary_kernel {k} sees a corner of a map of {seen}: 0 sees it all")
        if self.leaky and seen == (1, 1):
            raise ValueError("instance normalization of a 1×1 map leaves nothing: enlarge images")
        sizes, he_normal = [self.input_shape[-1], *features], nnx.initializers.he_normal()
        self.convs = convolutions(sizes, windows, kernel_init=he_normal, rngs=rngs)
        norm = nnx.InstanceNorm if self.leaky else partial(batch_norm, momentum=0.99)
        self.norms = nnx.List([norm(n, epsilon=1e-3, rngs=rngs) for n in features])
        self.primary = DepthwiseCapsules(features[-1], pose_size, k or seen, rngs=rngs)
        routing = SelfAttentionRouting(num_capsules, self.num_classes)
        # As in the released code, whose fan-in counts the children and the parents too.
        init = nnx.initializers.he_normal(in_axis=1)
        self.build_classes(num_capsules, config, rngs, routing=routing, kernel_init=init)
        self.build_decoder(config, config.class_pose, rngs)

    def feature_map(self, images: Pixels) -> Float[Array, "n rows columns f"]:
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            # Keras's leaky ReLU, with a slope of 0.3.
            x = norm(nnx.leaky_relu(conv(x), 0.3) if self.leaky else nnx.relu(conv(x)))
        return x


_MNIST = EfficientCapsNetConfig()
_MULTIMNIST = replace(_MNIST, strides=(1, 1, 2, 2), primary_kernel=5)
_SMALLNORB = replace(
    _MNIST, kernel_sizes=(7, 3, 3, 3), strides=(2, 1, 1, 2), normalization="instance"
)

# The paper counts without the decoder.
NETWORKS = {
    "efficient_capsnet_mnist": Network(EfficientCapsNet, _MNIST, parameters="161K + decoder"),
    "efficient_capsnet_multimnist": Network(
        EfficientCapsNet, _MULTIMNIST, (36, 36, 1), parameters="154K + decoder"
    ),
    "efficient_capsnet_smallnorb": Network(
        EfficientCapsNet, _SMALLNORB, (48, 48, 2), num_classes=5, parameters="151K + decoder"
    ),
}
