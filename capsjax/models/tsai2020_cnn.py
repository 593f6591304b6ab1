"""The convolutional networks that Tsai et al. 2020 compare with."""

from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp
from flax import nnx
from jax import lax

from capsjax.layers import ResNetBackbone, batch_norm, conv2d
from capsjax.models.config import (
    Normalization,
    check_lengths,
    not_negative,
    one_of,
    positive,
    scaled,
)
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind


@dataclass(frozen=True)
class BaselineCNNConfig(Normalization):
    """Sizes of a network of 3×3 convolutions; the defaults are those of table 2.

    Attributes:
      features: channels of each convolution.
      strides: of each convolution.
      paddings: zeros on each side, of each convolution.
      pool: 2×2 average pooling after all convolutions but the first.
      head: what follows, below the class scores: "flatten", "average" (a linear layer at each
        position, then the mean over positions: table 12) or "dense" (a linear layer of all
        positions: the pooling that is learned).
      hidden: units of that linear layer.
    """

    features: int = positive(1024)
    strides: tuple[int, ...] = positive((2, 2, 2))
    paddings: tuple[int, ...] = not_negative((1, 1, 1))
    pool: bool = True
    head: str = one_of("flatten", "average", "dense")
    hidden: int = positive(640)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths(strides=self.strides, paddings=self.paddings)


class BaselineCNN(Model):
    """Convolutions with ReLU, all but the first with batch normalisation, and a head.

    Tsai et al. 2020, tables 2, 3 and 12. 18,919,434 parameters for CIFAR-10.
    """

    options = BaselineCNNConfig()

    def build(self, config: BaselineCNNConfig, rngs: nnx.Rngs) -> None:
        windows = []
        for i, (strides, padding) in enumerate(zip(config.strides, config.paddings, strict=True)):
            windows.append(Window(3, strides, padding))
            if config.pool and i > 0:
                windows.append(Window(2, 2))
        *_, (height, width) = grids(self.input_shape, windows)
        features = scaled(config.features, config.width)
        hidden = scaled(config.hidden, config.width)
        self.pool = config.pool
        self.head = config.head
        convolution = partial(
            conv2d, kernel_size=3, kernel_init=nnx.initializers.he_normal(), rngs=rngs
        )
        inputs = (self.input_shape[-1], *[features] * (len(config.strides) - 1))
        options = zip(inputs, config.strides, config.paddings, strict=True)
        self.convs = nnx.List(
            [convolution(n, features, strides=s, padding=padding) for n, s, padding in options]
        )
        self.norms = nnx.List([batch_norm(features, rngs=rngs) for _ in self.convs[1:]])
        size = features if config.head == "average" else height * width * features
        self.dense = nnx.data(None)
        if config.head != "flatten":
            self.dense = nnx.Linear(size, hidden, rngs=rngs)
            size = hidden
        self.classifier = nnx.Linear(size, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1" … and, if there is one, "dense"."""
        x = nnx.relu(self.convs[0](images))
        features = {"conv1": x}
        for i, (conv, norm) in enumerate(zip(self.convs[1:], self.norms, strict=True), start=2):
            x = norm(nnx.relu(conv(x)))
            features[f"conv{i}"] = x
            if self.pool:
                x = nnx.avg_pool(x, (2, 2), (2, 2))
        if self.head != "average":
            x = lax.collapse(x, 1)
        if self.dense is not None:
            x = self.dense(x)
            if self.head == "average":
                x = jnp.mean(x, axis=(1, 2))
            features["dense"] = x
        scores = self.classifier(x)
        return Output(scores, features=features, score_kind=ScoreKind.LOGITS)


@dataclass(frozen=True)
class ResNetConfig(Normalization):
    """Sizes of a ResNet for small images; the defaults are those of ResNet-18.

    Attributes:
      features: channels of the four stages; all but the first halve the map.
      blocks: residual blocks of each stage.
    """

    features: tuple[int, ...] = positive((64, 128, 256, 512))
    blocks: tuple[int, ...] = positive((2, 2, 2, 2))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths(features=self.features, blocks=self.blocks)


class ResNet(Model):
    """A residual network and the mean over positions (He et al. 2016).

    The variant for CIFAR: a 3×3 stem and no pooling before the blocks, so that any image is large
    enough. 11,173,962 parameters for CIFAR-10.
    """

    options = ResNetConfig()

    def build(self, config: ResNetConfig, rngs: nnx.Rngs) -> None:
        stages = [
            (scaled(features, config.width), blocks, 1 if i == 0 else 2)
            for i, (features, blocks) in enumerate(zip(config.features, config.blocks, strict=True))
        ]
        self.backbone = ResNetBackbone(self.input_shape[-1], stages, rngs=rngs)
        self.classifier = nnx.Linear(self.backbone.out_features, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures the last feature map, "backbone"."""
        x = self.backbone(images)
        scores = self.classifier(jnp.mean(x, axis=(1, 2)))
        features = {"backbone": x}
        return Output(scores, features=features, score_kind=ScoreKind.LOGITS)


_CIFAR = (32, 32, 3)
_DIVERSE = BaselineCNNConfig(strides=(2, 2, 1), paddings=(1, 0, 0), pool=False, head="average")

NETWORKS = {
    "tsai2020_cnn_cifar10": Network(BaselineCNN, BaselineCNNConfig(), _CIFAR, 10, "18.92M"),
    "tsai2020_cnn_cifar100": Network(BaselineCNN, BaselineCNNConfig(), _CIFAR, 100, "19.01M"),
    "tsai2020_resnet18_cifar10": Network(ResNet, ResNetConfig(), _CIFAR, 10, "11.17M"),
    "tsai2020_resnet18_cifar100": Network(ResNet, ResNetConfig(), _CIFAR, 100, "11.22M"),
    "tsai2020_cnn_diverse": Network(BaselineCNN, _DIVERSE, (36, 36, 1), 10, "19.55M"),
    "tsai2020_cnn_diverse_dense": Network(
        BaselineCNN, replace(_DIVERSE, head="dense"), (36, 36, 1), 10, "42.49M"
    ),
}
