"""The EM routing baselines of Tsai et al. 2020, after Hinton et al. 2018."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array

from capsjax.functional import identity, relu
from capsjax.layers import (
    ConvCapsules,
    ConvNorm,
    EMClassCapsules,
    EMRouting,
    PrimaryCapsules,
    conv2d,
    unit_votes,
)
from capsjax.layers.bound import bound
from capsjax.models.config import Normalization, one_of, positive, scalable
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels
from capsjax.models.tsai2020 import BACKBONE, build_backbone
from capsjax.routing import softmax_over_parents, softmax_over_windows


@dataclass(frozen=True)
class EMCapsNetConfig(Normalization):
    """Sizes of a CapsNet with EM routing; the defaults are those of table 6.

    Attributes:
      backbone: "simple", one 4×4 convolution with stride 2 and batch normalisation, or "resnet".
      features: channels of the simple backbone. (The ResNet's are 64 and 128.)
      channels: capsules per position.
      pose_size: of all capsules, a square: poses are matrices.
      conv_strides: of the convolutional capsule layers, 3×3 without padding.
      num_iterations: of EM. Two were best in the paper.
      inverse_temperature: what λ rises to; see `EMRouting`. Narrow networks need more.
      normalize_over: a child is divided among the parents of one "position" at a time, or among
        all parents in its "receptive_field", as in Hinton et al.
    """

    backbone: str = one_of("simple", "resnet")
    features: int = scalable(256)
    channels: int = scalable(32)
    pose_size: int = positive(16)
    conv_strides: tuple[int, ...] = positive((2, 1))
    num_iterations: int = positive(2)
    inverse_temperature: float = positive(0.01)
    normalize_over: str = one_of("position", "receptive_field")


class EMCapsNet(Model):
    """Backbone, primary capsules with activations, EM capsule layers.

    Tsai et al. 2020, tables 6 and 7. 452,788 parameters for CIFAR-10 with the simple backbone.
    Scores are the activations of the class capsules.
    """

    options = EMCapsNetConfig()

    def build(self, config: EMCapsNetConfig, rngs: nnx.Rngs) -> None:
        simple = config.backbone == "simple"
        channels, pose_size = config.channels, config.pose_size
        windows = [Window(4, 2, padding=1) if simple else BACKBONE, Window(1)]
        windows += [Window(3, strides) for strides in config.conv_strides]
        in_features, features = self.input_shape[-1], config.features
        self.backbone: Callable[[Array], Array]
        if simple:
            convolution = ConvNorm(in_features, features, 4, strides=2, padding=1, rngs=rngs)
            self.backbone = nnx.Sequential(convolution, relu)
        else:
            self.backbone = build_backbone(config, in_features, rngs=rngs)
            features = self.backbone.out_features
        self.primary = PrimaryCapsules(
            features, channels, pose_size, kernel_size=1, strides=1, activation=identity, rngs=rngs
        )
        self.activations = conv2d(features, channels, 1, rngs=rngs)
        em: dict[str, Any] = {
            "num_iterations": config.num_iterations,
            "inverse_temperature": config.inverse_temperature,
        }
        conv_caps = []
        below = grids(self.input_shape, windows)[1:-1]
        for grid, strides in zip(below, config.conv_strides, strict=True):
            normalize = (
                softmax_over_parents
                if config.normalize_over == "position"
                else bound(softmax_over_windows, grid=grid, window=3, stride=strides)
            )
            conv_caps.append(
                ConvCapsules(
                    channels,
                    pose_size,
                    channels,
                    pose_size,
                    strides=strides,
                    form="matrix",
                    routing=EMRouting(channels, normalize=normalize, **em),
                    kernel_init=unit_votes,
                    rngs=rngs,
                )
            )
        self.conv_caps = nnx.List(conv_caps)
        self.classes = EMClassCapsules(channels, self.num_classes, pose_size, rngs=rngs, **em)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "backbone", "primary", "conv_caps1" …, "classes"."""
        x = self.backbone(images)
        poses, activations = self.primary(x), jax.nn.sigmoid(self.activations(x))
        features, routed = {"backbone": x, "primary": poses}, {}
        for i, layer in enumerate(self.conv_caps, start=1):
            out = layer(poses, layer.child_activations(activations))
            assert out.activations is not None  # EM routing has them
            poses, activations = out.poses, out.activations
            features[f"conv_caps{i}"], routed[f"conv_caps{i}"] = poses, out
        out = self.classes(poses, activations)
        assert out.activations is not None
        features["classes"], routed["classes"] = out.poses, out
        return Output(out.activations, out.poses, None, routed, features)


_SIMPLE = EMCapsNetConfig()
_RESNET = replace(_SIMPLE, backbone="resnet")

NETWORKS = {
    f"tsai2020_em_cifar{num_classes}_{config.backbone}": Network(
        EMCapsNet, config, (32, 32, 3), num_classes, parameters
    )
    for num_classes, config, parameters in [
        (10, _SIMPLE, "0.45M"),
        (100, _SIMPLE, "0.50M"),
        (10, _RESNET, "1.71M"),
        (100, _RESNET, "1.76M"),
    ]
}
