"""Capsules with inverted dot-product attention routing (Tsai et al. 2020)."""

from dataclasses import dataclass, replace
from typing import Any

import jax
from flax import nnx

from capsjax.layers import (
    ActivatedInvertedAttention,
    ConvCapsules,
    DenseCapsules,
    InvertedAttention,
    InvertedAttentionStack,
    PrimaryCapsules,
    ResNetBackbone,
    SimpleBackbone,
    conv2d,
    inverted_attention_init,
)
from capsjax.layers.inverted_attention import GridPoseNorm
from capsjax.models.config import Normalization, one_of, positive, scalable, scaled
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind


@dataclass(frozen=True)
class InvertedAttentionConfig(Normalization):
    """Sizes and ablations; the defaults are those for CIFAR-10 with the simple backbone (table 8).

    Attributes:
      backbone: "simple", one 3×3 convolution with stride 2, or "resnet".
      features: channels of the simple backbone. (The ResNet's are 64 and 128.)
      primary_kernel: of the convolution that makes the primary capsules.
      primary_strides: of the same; it has no padding and no bias.
      channels: capsules per position, of the primary and all convolutional capsules.
      pose_size: D, of all capsules.
      form: "matrix" poses, √D×√D, or "vector".
      conv_strides: of the convolutional capsule layers, 3×3 without padding.
      hidden_capsules: sizes of fully connected capsule layers below the class capsules.
      num_iterations: routing iterations, at least 1.
      schedule: "concurrent", "sequential" (ablation B) or "fixed_point".
      layer_norm: False is ablation A: no LayerNorm in the routing. (The primary capsules keep it.)
      scale_agreement: False leaves out the 1/√D of the agreement, as equation 2 is printed.
      activations: True is ablation C: capsules have activations, see `ActivatedInvertedAttention`.
      dense_votes: hold votes in one array instead of recomputing them.
      block_size: images routed at a time, to bound memory; None for all.
    """

    backbone: str = one_of("simple", "resnet")
    features: int = scalable(256)
    primary_kernel: int = positive(1)
    primary_strides: int = positive(1)
    channels: int = scalable(32)
    pose_size: int = positive(16)
    form: str = one_of("matrix", "vector")
    conv_strides: tuple[int, ...] = positive((2, 1))
    hidden_capsules: tuple[int, ...] = scalable(())
    num_iterations: int = positive(2)
    schedule: str = one_of("concurrent", "sequential", "fixed_point")
    layer_norm: bool = True
    scale_agreement: bool = True
    activations: bool = False
    dense_votes: bool = False
    block_size: int | None = positive(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activations and not self.layer_norm:
            raise ValueError("activations with layer_norm=False: ablations A and C do not combine")


class InvertedAttentionCapsNet(Model):
    """Backbone, primary capsules, capsule layers routed together, one linear map of class poses.

    Tsai et al. 2020, figure 1 and tables 8 to 11. 561,297 parameters with the simple backbone and
    1,828,817 with the ResNet, for CIFAR-10. Scores are logits.
    """

    options = InvertedAttentionConfig()

    def build(self, config: InvertedAttentionConfig, rngs: nnx.Rngs) -> None:
        self.backbone = build_backbone(config, self.input_shape[-1], rngs=rngs)
        features, kernel_size = self.backbone.out_features, config.primary_kernel
        self.primary = PrimaryCapsules(
            features,
            config.channels,
            config.pose_size,
            kernel_size=kernel_size,
            strides=config.primary_strides,
            use_bias=False,
            activation=GridPoseNorm(config.pose_size, rngs=rngs),
            rngs=rngs,
        )
        self.activations = nnx.data(None)
        if config.activations:
            self.activations = conv2d(
                features, config.channels, kernel_size, strides=config.primary_strides, rngs=rngs
            )
        self.stack = InvertedAttentionStack(
            self._layers(config, rngs),
            num_iterations=config.num_iterations,
            schedule=config.schedule,  # type: ignore[arg-type]
            dense_votes=config.dense_votes,
            block_size=config.block_size,
        )
        self.classifier = nnx.Linear(config.pose_size, 1, rngs=rngs)

    def _layers(self, config: InvertedAttentionConfig, rngs: nnx.Rngs) -> dict[str, DenseCapsules]:
        """Returns the capsule layers above the primary capsules, by name, from the bottom up."""
        primary = Window(config.primary_kernel, config.primary_strides)
        above = [Window(3, strides) for strides in config.conv_strides]
        height, width = grids(self.input_shape, [BACKBONE, primary, *above])[-1]
        channels, pose_size = config.channels, config.pose_size
        scale = None if config.scale_agreement else 1.0

        def options(num_parents: int) -> dict[str, Any]:
            routing: nnx.Module
            if config.activations:
                routing = ActivatedInvertedAttention(num_parents, pose_size, scale=scale, rngs=rngs)
            else:
                routing = InvertedAttention(
                    pose_size, layer_norm=config.layer_norm, scale=scale, rngs=rngs
                )
            init = inverted_attention_init
            return {"form": config.form, "routing": routing, "kernel_init": init, "rngs": rngs}

        layers: dict[str, DenseCapsules] = {}
        for i, strides in enumerate(config.conv_strides, start=1):
            sizes = channels, pose_size, channels, pose_size
            layers[f"conv_caps{i}"] = ConvCapsules(*sizes, strides=strides, **options(channels))
        parents = {f"caps{i}": size for i, size in enumerate(config.hidden_capsules, start=1)}
        children = height * width * channels
        for name, size in {**parents, "classes": self.num_classes}.items():
            layers[name] = DenseCapsules(children, pose_size, size, pose_size, **options(size))
            children = size
        return layers

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "backbone", "primary", "conv_caps1" …, "caps1" …, "classes"."""
        features = self.backbone(images)
        poses = self.primary(features)
        activations = None
        if self.activations is not None:
            activations = jax.nn.sigmoid(self.activations(features))
        routed = self.stack(poses, activations, capture=capture)
        top = routed["classes"]
        seen = top.poses
        if top.activations is not None:
            # The classifier sees a capsule as a layer above would: weighted by its activation.
            seen = seen * top.activations[..., None]
        scores = self.classifier(seen)[..., 0]
        captured = {"backbone": features, "primary": poses}
        captured |= {name: layer.poses for name, layer in routed.items()}
        return Output(scores, top.poses, None, routed, captured, ScoreKind.LOGITS)


BACKBONE = Window(3, 2, padding=1)  # what either makes of height and width


def build_backbone(
    config: Any, in_features: int, *, resnet_features: int | None = None, rngs: nnx.Rngs
) -> SimpleBackbone | ResNetBackbone:
    """Builds the paper's backbone: "simple", with the config's `features`, or "resnet".

    The last stage of the ResNet has `resnet_features`, by default 128 times the config's `width`.
    """
    if config.backbone == "simple":
        return SimpleBackbone(in_features, config.features, rngs=rngs)
    last = resnet_features or scaled(128, config.width)
    stages = [(scaled(64, config.width), 3, 1), (last, 4, 2)]
    return ResNetBackbone(in_features, stages, rngs=rngs)


_CIFAR10 = InvertedAttentionConfig()
_CIFAR100 = replace(_CIFAR10, features=128, pose_size=36, hidden_capsules=(20,))
_DIVERSE = InvertedAttentionConfig(
    features=1024, primary_kernel=3, primary_strides=2, channels=16, pose_size=64, conv_strides=(1,)
)


_CIFAR10_RESNET = replace(_CIFAR10, backbone="resnet")
_CIFAR100_RESNET = replace(_CIFAR100, backbone="resnet")


def _network(
    config: InvertedAttentionConfig,
    parameters: str | None = None,
    input_shape: tuple[int, int, int] = (32, 32, 3),
    num_classes: int = 10,
) -> Network:
    return Network(InvertedAttentionCapsNet, config, input_shape, num_classes, parameters)


NETWORKS = {
    "tsai2020_cifar10_simple": _network(_CIFAR10, "0.56M"),
    "tsai2020_cifar10_resnet": _network(_CIFAR10_RESNET, "1.83M"),
    "tsai2020_cifar100_simple": _network(_CIFAR100, "1.46M", num_classes=100),
    "tsai2020_cifar100_resnet": _network(_CIFAR100_RESNET, "2.80M", num_classes=100),
    # Vector poses are in the paper's text, not in its tables.
    "tsai2020_cifar10_simple_vector": _network(replace(_CIFAR10, form="vector")),
    "tsai2020_cifar10_resnet_vector": _network(replace(_CIFAR10_RESNET, form="vector")),
    "tsai2020_ablation_a": _network(replace(_CIFAR10, layer_norm=False)),
    "tsai2020_ablation_b": _network(replace(_CIFAR10, schedule="sequential")),
    "tsai2020_ablation_c": _network(replace(_CIFAR10, activations=True)),
    "tsai2020_diverse_matrix": _network(_DIVERSE, "9.96M", (36, 36, 1)),
    "tsai2020_diverse_vector": _network(replace(_DIVERSE, form="vector"), "42.48M", (36, 36, 1)),
    # The paper gives only its size: four times as many capsules make 41.6M.
    "tsai2020_diverse_matrix_42m": _network(replace(_DIVERSE, channels=64), "42M", (36, 36, 1)),
}
