"""Capsules with inverted dot-product attention routing (Tsai et al. 2020), and their baselines."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import identity, relu
from capsjax.layers import (
    ActivatedInvertedAttention,
    ConvCapsules,
    ConvNorm,
    DenseCapsules,
    EMClassCapsules,
    EMRouting,
    InvertedAttention,
    InvertedAttentionStack,
    PrimaryCapsules,
    ResNetBackbone,
    SimpleBackbone,
    conv2d,
    inverted_attention_init,
    unit_votes,
)
from capsjax.layers.bound import bound
from capsjax.layers.inverted_attention import GridPoseNorm
from capsjax.models.capsnet import CapsNet, CapsNetConfig
from capsjax.models.config import Normalization, not_negative, one_of, positive, scalable, scaled
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind
from capsjax.models.reconstruction import CapsuleChain
from capsjax.routing import dynamic_routing, softmax_over_parents, softmax_over_windows

_HALVING = Window(3, 2, padding=1)  # what either backbone makes of height and width


@dataclass(frozen=True)
class BackboneConfig(Normalization):
    """What the networks have in common.

    Attributes:
      backbone: "simple", one 3×3 convolution with stride 2, or "resnet".
      features: channels of the simple backbone. (The ResNet's are 64 and 128.)
      channels: capsules per position, of the primary and all convolutional capsules.
      num_iterations: of the routing.
    """

    backbone: str = one_of("simple", "resnet")
    features: int = scalable(256)
    channels: int = scalable(32)
    num_iterations: int = positive(2)


def build_backbone(
    config: BackboneConfig, in_features: int, *, last: int | None = None, rngs: nnx.Rngs
) -> SimpleBackbone | ResNetBackbone:
    """Builds a backbone; the ResNet's second stage has `last` channels, by default 128."""
    if config.backbone == "simple":
        return SimpleBackbone(in_features, config.features, rngs=rngs)
    first, second = scaled(64, config.width), last or scaled(128, config.width)
    return ResNetBackbone(in_features, [(first, 3, 1), (second, 4, 2)], rngs=rngs)


@dataclass(frozen=True)
class InvertedAttentionConfig(BackboneConfig):
    """Sizes and ablations; the defaults are those for CIFAR-10 with the simple backbone (table 8).

    Attributes:
      primary_kernel: of the convolution that makes the primary capsules.
      primary_strides: of the same; it has no padding and no bias.
      pose_size: D, of all capsules.
      form: "matrix" poses, √D×√D, or "vector".
      conv_strides: of the convolutional capsule layers, 3×3 without padding.
      hidden_capsules: sizes of fully connected capsule layers below the class capsules.
      schedule: "concurrent", "sequential" (ablation B) or "fixed_point".
      layer_norm: False is ablation A: no LayerNorm in the routing. (The primary capsules keep it.)
      scale_agreement: False leaves out the 1/√D of the agreement, as equation 2 is printed.
      activations: True is ablation C: capsules have activations, see `ActivatedInvertedAttention`.
      block_size: images routed at a time, to bound memory; None for all.
    """

    primary_kernel: int = positive(1)
    primary_strides: int = positive(1)
    pose_size: int = positive(16)
    form: str = one_of("matrix", "vector")
    conv_strides: tuple[int, ...] = positive((2, 1))
    hidden_capsules: tuple[int, ...] = scalable(())
    schedule: str = one_of("concurrent", "sequential", "fixed_point")
    layer_norm: bool = True
    scale_agreement: bool = True
    activations: bool = False
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

    def build(self, config: InvertedAttentionConfig, rngs: nnx.Rngs) -> None:
        self.backbone = build_backbone(config, self.input_shape[-1], rngs=rngs)
        features, channels = self.backbone.out_features, config.channels
        kernel_size, strides = config.primary_kernel, config.primary_strides
        norm = GridPoseNorm(config.pose_size, rngs=rngs)
        convolution: dict[str, Any] = {"kernel_size": kernel_size, "strides": strides, "rngs": rngs}
        self.primary = PrimaryCapsules(
            features, channels, config.pose_size, use_bias=False, activation=norm, **convolution
        )
        self.activations = nnx.data(None)
        if config.activations:
            self.activations = conv2d(features, channels, **convolution)
        self.stack = InvertedAttentionStack(
            self._layers(config, rngs),
            num_iterations=config.num_iterations,
            schedule=config.schedule,  # type: ignore[arg-type]
            block_size=config.block_size,
        )
        self.classifier = nnx.Linear(config.pose_size, 1, rngs=rngs)

    def _layers(self, config: InvertedAttentionConfig, rngs: nnx.Rngs) -> dict[str, DenseCapsules]:
        """Returns the capsule layers above the primary capsules, by name, from the bottom up."""
        primary = Window(config.primary_kernel, config.primary_strides)
        above = [Window(3, strides) for strides in config.conv_strides]
        height, width = grids(self.input_shape, [_HALVING, primary, *above])[-1]
        channels, pose_size = config.channels, config.pose_size
        scale = None if config.scale_agreement else 1.0

        def options(num_parents: int) -> dict[str, Any]:
            routing: nnx.Module
            if config.activations:
                routing = ActivatedInvertedAttention(num_parents, pose_size, scale=scale, rngs=rngs)
            else:
                norm = config.layer_norm
                routing = InvertedAttention(pose_size, layer_norm=norm, scale=scale, rngs=rngs)
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


@dataclass(frozen=True)
class DynamicCapsNetConfig(BackboneConfig):
    """Sizes of a CapsNet with dynamic routing on a backbone; the defaults are those for CIFAR.

    Attributes:
      features: channels of the backbone's map. (The ResNet's first stage has 64.)
      primary_kernel: of the primary capsules, with stride 2.
      primary_padding: zeros on each side.
      primary_pose: pose size of the primary and the convolutional capsules.
      num_conv_caps: convolutional capsule layers, 3×3 with stride 1 and no padding.
      class_pose: pose size of the class capsules.
    """

    backbone: str = one_of("resnet", "simple")
    primary_kernel: int = positive(9)
    primary_padding: int = not_negative(4)
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

    map_name = "backbone"

    def build(self, config: DynamicCapsNetConfig, rngs: nnx.Rngs) -> None:
        channels, pose_size = config.channels, config.primary_pose
        primary = Window(config.primary_kernel, 2, config.primary_padding)
        above = [Window(3) for _ in range(config.num_conv_caps)]
        height, width = grids(self.input_shape, [_HALVING, primary, *above])[-1]
        routing = bound(dynamic_routing, num_iterations=config.num_iterations)
        self.backbone = build_backbone(
            config, self.input_shape[-1], last=config.features, rngs=rngs
        )
        k, _, padding = primary
        features = self.backbone.out_features
        self.primary = PrimaryCapsules(
            features, channels, pose_size, kernel_size=k, padding=padding, rngs=rngs
        )
        sizes = channels, pose_size, channels, pose_size
        self.conv_caps = nnx.List([ConvCapsules(*sizes, routing=routing, rngs=rngs) for _ in above])
        self.build_classes(height * width * channels, config, rngs, routing=routing)

    def feature_map(self, images: Pixels) -> Float[Array, "n rows columns f"]:
        return self.backbone(images)

    def between(self) -> dict[str, ConvCapsules]:
        """Returns the convolutional layers, captured as "conv_caps1" …."""
        return {f"conv_caps{i}": layer for i, layer in enumerate(self.conv_caps, 1)}


@dataclass(frozen=True)
class EMCapsNetConfig(BackboneConfig):
    """Sizes of a CapsNet with EM routing; the defaults are those of table 6.

    Attributes:
      backbone: "simple", one 4×4 convolution with stride 2 and batch normalisation, or "resnet".
      pose_size: of all capsules, a square: poses are matrices.
      conv_strides: of the convolutional capsule layers, 3×3 without padding.
      inverse_temperature: what λ rises to; see `EMRouting`. Narrow networks need more.
      normalize_over: a child is divided among the parents of one "position" at a time, or among
        all parents in its "receptive_field", as in Hinton et al.
    """

    pose_size: int = positive(16)
    conv_strides: tuple[int, ...] = positive((2, 1))
    inverse_temperature: float = positive(0.01)
    normalize_over: str = one_of("position", "receptive_field")


class EMCapsNet(Model):
    """Backbone, primary capsules with activations, EM capsule layers.

    Tsai et al. 2020, tables 6 and 7. 452,788 parameters for CIFAR-10 with the simple backbone.
    Scores are the activations of the class capsules.
    """

    def build(self, config: EMCapsNetConfig, rngs: nnx.Rngs) -> None:
        simple = config.backbone == "simple"
        channels, pose_size = config.channels, config.pose_size
        windows = [Window(4, 2, padding=1) if simple else _HALVING, Window(1)]
        windows += [Window(3, strides) for strides in config.conv_strides]
        in_features, features = self.input_shape[-1], config.features
        if simple:
            convolution = ConvNorm(in_features, features, 4, strides=2, padding=1, rngs=rngs)
            self.backbone: Any = nnx.Sequential(convolution, relu)
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
        matrices: dict[str, Any] = {"form": "matrix", "kernel_init": unit_votes, "rngs": rngs}
        self.conv_caps: nnx.List[ConvCapsules] = nnx.List([])
        below = grids(self.input_shape, windows)[1:-1]
        for grid, strides in zip(below, config.conv_strides, strict=True):
            normalize = softmax_over_parents
            if config.normalize_over == "receptive_field":
                normalize = bound(softmax_over_windows, grid=grid, window=3, stride=strides)
            routing = EMRouting(channels, normalize=normalize, **em)
            sizes = channels, pose_size, channels, pose_size
            layer = ConvCapsules(*sizes, strides=strides, routing=routing, **matrices)
            self.conv_caps.append(layer)
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


_CIFAR10 = InvertedAttentionConfig()
_CIFAR100 = replace(_CIFAR10, features=128, pose_size=36, hidden_capsules=(20,))
_CIFAR10_RESNET = replace(_CIFAR10, backbone="resnet")
_CIFAR100_RESNET = replace(_CIFAR100, backbone="resnet")
_WIDE: dict[str, Any] = {"features": 1024, "primary_kernel": 3, "channels": 16}
_DIVERSE = replace(_CIFAR10, **_WIDE, primary_strides=2, pose_size=64, conv_strides=(1,))
_DIVERSE_VECTOR, _DIVERSE_42M = replace(_DIVERSE, form="vector"), replace(_DIVERSE, channels=64)
_EM, _EM_RESNET = EMCapsNetConfig(), EMCapsNetConfig(backbone="resnet")
_SIMPLE, _DYNAMIC = CapsNetConfig(reconstruction="none"), DynamicCapsNetConfig()
_DYNAMIC_SIMPLE = replace(_DYNAMIC, backbone="simple", primary_padding=0, num_conv_caps=1)
_DYNAMIC_DIVERSE = replace(_DYNAMIC_SIMPLE, **_WIDE, primary_pose=64, class_pose=64)
_CIFAR, _MULTIMNIST = (32, 32, 3), (36, 36, 1)
_inverted = partial(Network, InvertedAttentionCapsNet)
_dynamic = partial(Network, DynamicCapsNet)
_em = partial(Network, EMCapsNet)

NETWORKS = {
    "tsai2020_cifar10_simple": _inverted(_CIFAR10, _CIFAR, 10, "0.56M"),
    "tsai2020_cifar10_resnet": _inverted(_CIFAR10_RESNET, _CIFAR, 10, "1.83M"),
    "tsai2020_cifar100_simple": _inverted(_CIFAR100, _CIFAR, 100, "1.46M"),
    "tsai2020_cifar100_resnet": _inverted(_CIFAR100_RESNET, _CIFAR, 100, "2.80M"),
    # Vector poses are in the paper's text, not in its tables.
    "tsai2020_cifar10_simple_vector": _inverted(replace(_CIFAR10, form="vector"), _CIFAR),
    "tsai2020_cifar10_resnet_vector": _inverted(replace(_CIFAR10_RESNET, form="vector"), _CIFAR),
    "tsai2020_ablation_a": _inverted(replace(_CIFAR10, layer_norm=False), _CIFAR),
    "tsai2020_ablation_b": _inverted(replace(_CIFAR10, schedule="sequential"), _CIFAR),
    "tsai2020_ablation_c": _inverted(replace(_CIFAR10, activations=True), _CIFAR),
    "tsai2020_diverse_matrix": _inverted(_DIVERSE, _MULTIMNIST, 10, "9.96M"),
    "tsai2020_diverse_vector": _inverted(_DIVERSE_VECTOR, _MULTIMNIST, 10, "42.48M"),
    # The paper gives only its size: four times as many capsules make 41.6M.
    "tsai2020_diverse_matrix_42m": _inverted(_DIVERSE_42M, _MULTIMNIST, 10, "42M"),
    "tsai2020_dynamic_cifar10_simple": Network(CapsNet, _SIMPLE, _CIFAR, 10, "7.99M"),
    "tsai2020_dynamic_cifar100_simple": Network(CapsNet, _SIMPLE, _CIFAR, 100, "31.59M"),
    "tsai2020_dynamic_cifar10_resnet": _dynamic(_DYNAMIC, _CIFAR, 10, "12.45M"),
    "tsai2020_dynamic_cifar100_resnet": _dynamic(_DYNAMIC, _CIFAR, 100, "36.04M"),
    "tsai2020_dynamic_diverse": _dynamic(_DYNAMIC_DIVERSE, _MULTIMNIST, 10, "42.48M"),
    "tsai2020_em_cifar10_simple": _em(_EM, _CIFAR, 10, "0.45M"),
    "tsai2020_em_cifar100_simple": _em(_EM, _CIFAR, 100, "0.50M"),
    "tsai2020_em_cifar10_resnet": _em(_EM_RESNET, _CIFAR, 10, "1.71M"),
    "tsai2020_em_cifar100_resnet": _em(_EM_RESNET, _CIFAR, 100, "1.76M"),
}
