"""The dynamic routing baselines of Tsai et al. 2020."""

from dataclasses import dataclass

from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers import ConvCapsules, DenseCapsules, PrimaryCapsules
from capsjax.layers.bound import bound
from capsjax.models.capsnet import CapsNet, CapsNetConfig
from capsjax.models.config import Normalization, not_negative, one_of, positive, scalable
from capsjax.models.grids import Window, grids
from capsjax.models.model import Network, Pixels
from capsjax.models.reconstruction import CapsuleChain
from capsjax.models.tsai2020 import BACKBONE, build_backbone
from capsjax.routing import dynamic_routing


@dataclass(frozen=True)
class DynamicCapsNetConfig(Normalization):
    """Sizes of a CapsNet with dynamic routing on a backbone; the defaults are those for CIFAR.

    Attributes:
      backbone: "simple", one 3×3 convolution with stride 2, or "resnet".
      features: channels of the backbone's map. (The ResNet's first stage has 64.)
      primary_kernel: of the primary capsules, with stride 2.
      primary_padding: zeros on each side.
      channels: capsules per position.
      primary_pose: pose size of the primary and the convolutional capsules.
      num_conv_caps: convolutional capsule layers, 3×3 with stride 1 and no padding.
      class_pose: pose size of the class capsules.
      num_iterations: of the routing.
    """

    backbone: str = one_of("resnet", "simple")
    features: int = scalable(256)
    primary_kernel: int = positive(9)
    primary_padding: int = not_negative(4)
    channels: int = scalable(32)
    primary_pose: int = positive(8)
    num_conv_caps: int = not_negative(0)
    class_pose: int = positive(16)
    num_iterations: int = positive(3)


class DynamicCapsNet(CapsuleChain):
    """Backbone, primary capsules, capsule layers with dynamic routing; scores are lengths.

    Tsai et al. 2020: their "Dynamic Routing, ResNet" is not described, but its two sizes follow
    from a ResNet whose last stage has 256 channels and table 4's own 9×9 convolution with stride 2,
    padded by 4, to 8×8×32 primary capsules of 8: 12,451,136 parameters for CIFAR-10 and 36,044,096
    for CIFAR-100. (The text's 128 channels after the backbone then apply only to the others.)
    """

    options = DynamicCapsNetConfig()
    map_name = "backbone"

    def build(self, config: DynamicCapsNetConfig, rngs: nnx.Rngs) -> None:
        channels, pose_size = config.channels, config.primary_pose
        primary = Window(config.primary_kernel, 2, config.primary_padding)
        above = [Window(3) for _ in range(config.num_conv_caps)]
        height, width = grids(self.input_shape, [BACKBONE, primary, *above])[-1]
        routing = bound(dynamic_routing, num_iterations=config.num_iterations)
        self.backbone = build_backbone(
            config, self.input_shape[-1], resnet_features=config.features, rngs=rngs
        )
        self.primary = PrimaryCapsules(
            self.backbone.out_features,
            channels,
            pose_size,
            kernel_size=config.primary_kernel,
            padding=config.primary_padding,
            rngs=rngs,
        )
        sizes = channels, pose_size, channels, pose_size
        self.conv_caps = nnx.List([ConvCapsules(*sizes, routing=routing, rngs=rngs) for _ in above])
        self.classes = DenseCapsules(
            height * width * channels,
            pose_size,
            self.num_classes,
            config.class_pose,
            routing=routing,
            rngs=rngs,
        )

    def feature_map(self, images: Pixels) -> Float[Array, "n rows columns f"]:
        """Returns the backbone's map."""
        return self.backbone(images)

    def between(self) -> dict[str, ConvCapsules]:
        """Captures "conv_caps1" …."""
        return {f"conv_caps{i}": layer for i, layer in enumerate(self.conv_caps, 1)}


_SIMPLE = CapsNetConfig(reconstruction="none")
_RESNET = DynamicCapsNetConfig()
_DIVERSE = DynamicCapsNetConfig(
    backbone="simple",
    features=1024,
    primary_kernel=3,
    primary_padding=0,
    channels=16,
    primary_pose=64,
    num_conv_caps=1,
    class_pose=64,
)
_CIFAR = (32, 32, 3)

NETWORKS = {
    "tsai2020_dynamic_cifar10_simple": Network(CapsNet, _SIMPLE, _CIFAR, 10, "7.99M"),
    "tsai2020_dynamic_cifar100_simple": Network(CapsNet, _SIMPLE, _CIFAR, 100, "31.59M"),
    "tsai2020_dynamic_cifar10_resnet": Network(DynamicCapsNet, _RESNET, _CIFAR, 10, "12.45M"),
    "tsai2020_dynamic_cifar100_resnet": Network(DynamicCapsNet, _RESNET, _CIFAR, 100, "36.04M"),
    "tsai2020_dynamic_diverse": Network(DynamicCapsNet, _DIVERSE, (36, 36, 1), 10, "42.48M"),
}
