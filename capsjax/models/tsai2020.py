"""Capsules with inverted dot-product attention routing (Tsai et al. 2020)."""

from dataclasses import dataclass, replace

import jax
from flax import nnx
from jaxtyping import Array, Float, Key

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
from capsjax.layers.inverted_attention import pose_norm
from capsjax.models.config import multiplier, one_of, positive, scaled
from capsjax.models.grids import Window, grids
from capsjax.models.model import Inputs, Model, Network, Normalization, Output, ScoreKind


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
      width: multiplies the backbone's features, channels and hidden_capsules, for small machines.
    """

    backbone: str = one_of("simple", "resnet")
    features: int = positive(256)
    primary_kernel: int = positive(1)
    primary_strides: int = positive(1)
    channels: int = positive(32)
    pose_size: int = positive(16)
    form: str = one_of("matrix", "vector")
    conv_strides: tuple[int, ...] = positive((2, 1))
    hidden_capsules: tuple[int, ...] = positive(())
    num_iterations: int = positive(2)
    schedule: str = one_of("concurrent", "sequential", "fixed_point")
    layer_norm: bool = True
    scale_agreement: bool = True
    activations: bool = False
    dense_votes: bool = False
    block_size: int | None = positive(None)
    width: float = multiplier()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activations and not self.layer_norm:
            raise ValueError("activations with layer_norm=False: ablations A and C do not combine")


class InvertedAttentionCapsNet(Model):
    """Backbone, primary capsules, capsule layers routed together, one linear map of class poses.

    Tsai et al. 2020, figure 1 and tables 8 to 11. 561,297 parameters with the simple backbone and
    1,828,817 with the ResNet, for CIFAR-10. Scores are logits.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        config: InvertedAttentionConfig = InvertedAttentionConfig(),
        *,
        rngs: nnx.Rngs,
    ):
        conv_grids = grids(
            input_shape,
            [
                Window(3, 2, padding=1),  # the backbone
                Window(config.primary_kernel, config.primary_strides),
                *(Window(3, strides) for strides in config.conv_strides),
            ],
        )
        channels = scaled(config.channels, config.width)
        pose_size = config.pose_size
        self.inputs = Inputs(input_shape, config.mean, config.std)
        self.backbone = build_backbone(
            config.backbone, input_shape[-1], config.features, config.width, rngs=rngs
        )
        self.primary = PrimaryCapsules(
            self.backbone.out_features,
            channels,
            pose_size,
            kernel_size=config.primary_kernel,
            strides=config.primary_strides,
            use_bias=False,
            activation=pose_norm(pose_size, rngs=rngs),
            rngs=rngs,
        )
        self.activations = (
            conv2d(
                self.backbone.out_features,
                channels,
                config.primary_kernel,
                strides=config.primary_strides,
                rngs=rngs,
            )
            if config.activations
            else nnx.data(None)
        )

        scale = None if config.scale_agreement else 1.0

        def routing(num_parents: int) -> nnx.Module:
            if config.activations:
                return ActivatedInvertedAttention(num_parents, pose_size, scale=scale, rngs=rngs)
            return InvertedAttention(
                pose_size, layer_norm=config.layer_norm, scale=scale, rngs=rngs
            )

        def layer_options(num_parents: int) -> dict:
            return {
                "form": config.form,
                "routing": routing(num_parents),
                "kernel_init": inverted_attention_init,
                "rngs": rngs,
            }

        layers: dict[str, ConvCapsules | DenseCapsules] = {}
        for i, strides in enumerate(config.conv_strides, start=1):
            layers[f"conv_caps{i}"] = ConvCapsules(
                channels,
                pose_size,
                channels,
                pose_size,
                kernel_size=3,
                strides=strides,
                **layer_options(channels),
            )
        height, width = conv_grids[-1]
        children = height * width * channels
        for i, size in enumerate(config.hidden_capsules, start=1):
            size = scaled(size, config.width)
            layers[f"caps{i}"] = DenseCapsules(
                children, pose_size, size, pose_size, **layer_options(size)
            )
            children = size
        layers["classes"] = DenseCapsules(
            children, pose_size, num_classes, pose_size, **layer_options(num_classes)
        )
        self.stack = InvertedAttentionStack(
            layers,
            num_iterations=config.num_iterations,
            schedule=config.schedule,  # type: ignore[arg-type]
            dense_votes=config.dense_votes,
            block_size=config.block_size,
        )
        self.classifier = nnx.Linear(pose_size, 1, rngs=rngs)

    def forward(
        self,
        images: Float[Array, "n h w c"],
        *,
        mask: Float[Array, "n *targets classes"] | None,
        keys: Key[Array, "n"] | None,
        capture: bool,
    ) -> Output:
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
        output = Output(scores, top.poses, score_kind=ScoreKind.LOGITS)
        if not capture:
            return output
        return output._replace(
            routed=routed,
            features={"backbone": features, "primary": poses}
            | {name: layer.poses for name, layer in routed.items()},
        )


def build_backbone(
    kind: str,
    in_features: int,
    features: int,
    width: float,
    *,
    resnet_features: int = 128,
    rngs: nnx.Rngs,
) -> SimpleBackbone | ResNetBackbone:
    """The backbones of the paper: "simple", with `features`, or "resnet", with `resnet_features`.

    Both halve height and width. `width` multiplies all features.
    """
    if kind == "simple":
        return SimpleBackbone(in_features, scaled(features, width), rngs=rngs)
    stages = [(scaled(64, width), 3, 1), (scaled(resnet_features, width), 4, 2)]
    return ResNetBackbone(in_features, stages, rngs=rngs)


_CIFAR = (32, 32, 3)
_CIFAR10 = InvertedAttentionConfig()
_CIFAR100 = replace(_CIFAR10, features=128, pose_size=36, hidden_capsules=(20,))
_DIVERSE = InvertedAttentionConfig(
    features=1024,
    primary_kernel=3,
    primary_strides=2,
    channels=16,
    pose_size=64,
    conv_strides=(1,),
)


def _network(
    config: InvertedAttentionConfig,
    parameters: str | None,
    input_shape: tuple[int, int, int] = _CIFAR,
    num_classes: int = 10,
) -> Network:
    return Network(InvertedAttentionCapsNet, config, input_shape, num_classes, parameters)


NETWORKS = {
    "tsai2020_cifar10_simple": _network(_CIFAR10, "0.56M"),
    "tsai2020_cifar10_resnet": _network(replace(_CIFAR10, backbone="resnet"), "1.83M"),
    "tsai2020_cifar100_simple": _network(_CIFAR100, "1.46M", num_classes=100),
    "tsai2020_cifar100_resnet": _network(
        replace(_CIFAR100, backbone="resnet"), "2.80M", num_classes=100
    ),
    # Vector poses are in the paper's text, not in its tables.
    "tsai2020_cifar10_simple_vector": _network(replace(_CIFAR10, form="vector"), None),
    "tsai2020_cifar10_resnet_vector": _network(
        replace(_CIFAR10, backbone="resnet", form="vector"), None
    ),
    "tsai2020_ablation_a": _network(replace(_CIFAR10, layer_norm=False), None),
    "tsai2020_ablation_b": _network(replace(_CIFAR10, schedule="sequential"), None),
    "tsai2020_ablation_c": _network(replace(_CIFAR10, activations=True), None),
    "tsai2020_diverse_matrix": _network(_DIVERSE, "9.96M", (36, 36, 1)),
    "tsai2020_diverse_vector": _network(replace(_DIVERSE, form="vector"), "42.48M", (36, 36, 1)),
    # Not described but for its size: four times as many capsules give 41.6M.
    "tsai2020_diverse_matrix_42m": _network(replace(_DIVERSE, channels=64), "42M", (36, 36, 1)),
}
