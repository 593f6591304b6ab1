"""Convolutional networks to compare CapsNets with (Gu et al. 2021)."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from flax import nnx
from jax import lax

from capsjax.layers import conv2d
from capsjax.models.config import Config, check_lengths, positive, scaled
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind


@dataclass(frozen=True)
class ConvNetConfig(Config):
    """Sizes of a ConvNet; the defaults are those of ConvNet-Avg.

    Attributes:
      features: channels of each convolution.
      strides: of each convolution.
      kernel_size: of all convolutions (no padding).
      average_pool: average the last map over its positions; else the next layer sees them all.
      dense_features: sizes of the dense layers between maps and classes.
    """

    features: tuple[int, ...] = positive((256, 256))
    strides: tuple[int, ...] = positive((1, 2))
    kernel_size: int = positive(9)
    average_pool: bool = True
    dense_features: tuple[int, ...] = positive(())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths(features=self.features, strides=self.strides)


class ConvNet(Model):
    """Convolutions and dense layers with ReLU, then one logit per class.

    Gu et al. 2021, figure 1: ConvNet-Avg (5,332,234 parameters for 40×40×1 and ten classes) and
    ConvNet-FC (35,445,522).
    """

    options = ConvNetConfig()

    def build(self, config: ConvNetConfig, rngs: nnx.Rngs) -> None:
        k = config.kernel_size
        windows = [Window(k, stride) for stride in config.strides]
        height, width = grids(self.input_shape, windows)[-1]
        self.average_pool = config.average_pool
        convs, size = [], self.input_shape[-1]
        for features, stride in zip(config.features, config.strides, strict=True):
            features = scaled(features, config.width)
            convs.append(conv2d(size, features, k, strides=stride, rngs=rngs))
            size = features
        if not config.average_pool:
            size *= height * width
        dense = []
        for features in config.dense_features:
            features = scaled(features, config.width)
            dense.append(nnx.Linear(size, features, rngs=rngs))
            size = features
        self.convs, self.dense = nnx.List(convs), nnx.List(dense)
        self.classes = nnx.Linear(size, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1" …, "pool", "dense1" …."""
        captured = {}
        x = images
        for i, conv in enumerate(self.convs, 1):
            x = captured[f"conv{i}"] = nnx.relu(conv(x))
        if self.average_pool:
            x = captured["pool"] = jnp.mean(x, axis=(1, 2))
        x = lax.collapse(x, 1)
        for i, layer in enumerate(self.dense, 1):
            x = captured[f"dense{i}"] = nnx.relu(layer(x))
        logits = self.classes(x)
        return Output(logits, features=captured, score_kind=ScoreKind.LOGITS)


_AVG = ConvNetConfig()
_FC = ConvNetConfig(
    features=(256, 256, 128),
    strides=(1, 1, 1),
    kernel_size=5,
    average_pool=False,
    dense_features=(328, 192),
)
# "Large kernels", with dense layers so narrow that the size is that of CapsNet on 36×36
# (11,362,064). Their widths are not published; these keep the proportion 328 : 192.
_FC_LK = replace(_FC, kernel_size=9, dense_features=(182, 107))

NETWORKS = {
    "gu2021_convnet_avg": Network(ConvNet, _AVG, (40, 40, 1), parameters="5.3M"),
    "gu2021_convnet_fc": Network(ConvNet, _FC, (40, 40, 1), parameters="35.4M"),
    "gu2021_convnet_fc_lk": Network(ConvNet, _FC_LK, (36, 36, 1)),
}
