"""The convolutional networks that the papers compare their capsules with."""

from dataclasses import dataclass, replace
from itertools import pairwise

import jax.numpy as jnp
from flax import nnx
from jax import lax

from capsjax.functional import safe_norm, squash
from capsjax.layers import ResNetBackbone, batch_norm
from capsjax.models.config import (
    Config,
    Normalization,
    not_negative,
    one_of,
    positive,
    scalable,
    scaled,
)
from capsjax.models.grids import Window, convolutions, grids
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind
from capsjax.models.reconstruction import ReconstructingModel, Reconstruction


@dataclass(frozen=True)
class ConvNetConfig(Config):
    """Sizes of a ConvNet; the defaults are those of ConvNet-Avg.

    Attributes:
      features: channels of each convolution.
      strides: of each convolution.
      kernel_size: of all convolutions.
      padding: "VALID" for none, or "SAME".
      average_pool: average the last map over its positions; else the next layer sees them all.
      dense_features: sizes of the dense layers between maps and classes.
    """

    features: tuple[int, ...] = scalable((256, 256))
    strides: tuple[int, ...] = positive((1, 2))
    kernel_size: int = positive(9)
    padding: str = one_of("VALID", "SAME")
    average_pool: bool = True
    dense_features: tuple[int, ...] = scalable(())

    PER_LAYER = ("features", "strides")


class ConvNet(Model):
    """Convolutions and dense layers with ReLU, then one logit per class.

    Gu et al. 2021, figure 1: ConvNet-Avg (5,332,234 parameters for 40×40×1) and -FC (35,445,522).
    """

    def build(self, config: ConvNetConfig, rngs: nnx.Rngs) -> None:
        k, padding = config.kernel_size, config.padding
        windows = [Window(k, stride) for stride in config.strides]
        seen = windows if padding == "VALID" else [Window(1, stride) for stride in config.strides]
        height, width = grids(self.input_shape, seen)[-1]
        self.average_pool = config.average_pool
        features = [self.input_shape[-1], *config.features]
        self.convs = convolutions(features, windows, padding=padding, rngs=rngs)
        size = config.features[-1] * (1 if config.average_pool else height * width)
        sizes = [size, *config.dense_features]
        self.dense = nnx.List([nnx.Linear(n, m, rngs=rngs) for n, m in pairwise(sizes)])
        self.classes = nnx.Linear(sizes[-1], self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1" …, "pool", "dense1" …."""
        captured, x = {}, images
        for i, conv in enumerate(self.convs, 1):
            x = captured[f"conv{i}"] = nnx.relu(conv(x))
        if self.average_pool:
            x = captured["pool"] = jnp.mean(x, axis=(1, 2))
        x = lax.collapse(x, 1)
        for i, layer in enumerate(self.dense, 1):
            x = captured[f"dense{i}"] = nnx.relu(layer(x))
        return Output(self.classes(x), features=captured, score_kind=ScoreKind.LOGITS)


@dataclass(frozen=True)
class ReconstructingConvNetConfig(Reconstruction):
    """Sizes and switches; the defaults are those of ConvNet-CR.

    Attributes:
      features: channels of both convolutions.
      kernel_size: of both (stride 1, then 2, no padding).
      class_units: units per class of the dense layer.
      classifier: the scores are the "sum" of each class's units; the "length" of each class's
        units, taken as a pose; or a "linear" layer on all units.
      squash: squash the second convolution's map, in place of ReLU, and the units of each class.
      squash_pose: size of the poses in which the map is squashed.
    """

    features: int = positive(256)
    kernel_size: int = positive(9)
    class_units: int = positive(16)
    classifier: str = one_of("sum", "length", "linear")
    squash: bool = False
    squash_pose: int = positive(8)


class ReconstructingConvNet(ReconstructingModel):
    """The two convolutions of CapsNet, one dense layer, and CapsNet's decoder on its units.

    ConvNet-R, -CR and -CR-SF (Gu et al. 2021, section 3.3). The units are not rectified, although
    the text says that all dense layers are: the sigmoid of a sum of rectified units could not be
    below one half. 8,215,728 parameters for 28×28×1: CapsNet's and the dense layer's bias.
    """

    def build(self, config: ReconstructingConvNetConfig, rngs: nnx.Rngs) -> None:
        windows = [Window(config.kernel_size), Window(config.kernel_size, 2)]
        height, width = grids(self.input_shape, windows)[-1]
        self.classifier = config.classifier
        self.squash_pose = config.squash_pose if config.squash else None
        # A whole number of poses, at any width.
        pose = self.squash_pose or 1
        features = scaled(config.features // pose, config.width) * pose
        units = self.num_classes * config.class_units
        sizes = [self.input_shape[-1], features, features]
        self.convs = convolutions(sizes, windows, rngs=rngs)
        self.dense = nnx.Linear(height * width * features, units, rngs=rngs)
        self.linear = nnx.data(None)
        if config.classifier == "linear":
            self.linear = nnx.Linear(units, self.num_classes, rngs=rngs)
        self.build_decoder(config, config.class_units, rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1", "conv2" and "classes".

        With a linear classifier units belong to no class; row k of the poses is the k-th group.
        """
        first = nnx.relu(self.convs[0](images))
        second = self.convs[1](first)
        if self.squash_pose is None:
            second = nnx.relu(second)
        else:
            num_poses = second.shape[-1] // self.squash_pose
            second = squash(second.reshape(*second.shape[:-1], num_poses, self.squash_pose))
        units = self.dense(lax.collapse(second, 1))
        size = units.shape[-1] // self.num_classes
        poses = units.reshape(images.shape[0], self.num_classes, size)
        if self.squash_pose is not None:
            poses = squash(poses)
        kind = ScoreKind.LOGITS
        if self.linear is not None:
            scores = self.linear(lax.collapse(poses, 1))
        elif self.classifier == "length":
            scores, kind = safe_norm(poses), ScoreKind.LENGTHS
        else:
            scores = jnp.sum(poses, axis=-1)
        reconstruction = self.reconstruct(poses, scores, mask)
        captured = {"conv1": first, "conv2": second, "classes": poses}
        return Output(scores, poses, reconstruction, features=captured, score_kind=kind)


@dataclass(frozen=True)
class PooledCNNConfig(Config):
    """Sizes of a CNN with pooling; the defaults are those for MultiMNIST.

    Attributes:
      features: channels of each convolution (stride 1, padded), each followed by 2×2 max-pooling.
      kernel_sizes: of each convolution.
      dense_features: units of the dense layer below the classes.
    """

    features: tuple[int, ...] = scalable((512, 256))
    kernel_sizes: tuple[int, ...] = positive((9, 5))
    dense_features: int = scalable(1024)

    PER_LAYER = ("features", "kernel_sizes")


class PooledCNN(Model):
    """Padded convolutions with ReLU and max-pooling, a dense layer with ReLU, logits.

    Sabour et al. 2017 give 512 kernels of 9×9, 256 of 5×5, 2×2 pooling after each, 1024 units and
    24.56M parameters. They do not mention padding, but only with it do these sizes have 24,563,978.
    """

    def build(self, config: PooledCNNConfig, rngs: nnx.Rngs) -> None:
        *_, (height, width) = grids(self.input_shape, [Window(2, 2) for _ in config.features])
        features = [self.input_shape[-1], *config.features]
        windows = [Window(k) for k in config.kernel_sizes]
        self.convs = convolutions(features, windows, padding="SAME", rngs=rngs)
        size = height * width * features[-1]
        self.dense = nnx.Linear(size, config.dense_features, rngs=rngs)
        self.classes = nnx.Linear(config.dense_features, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1" …, "dense"."""
        captured, x = {}, images
        for i, conv in enumerate(self.convs, 1):
            x = captured[f"conv{i}"] = nnx.max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        x = captured["dense"] = nnx.relu(self.dense(lax.collapse(x, 1)))
        return Output(self.classes(x), features=captured, score_kind=ScoreKind.LOGITS)


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

    features: int = scalable(1024)
    strides: tuple[int, ...] = positive((2, 2, 2))
    paddings: tuple[int, ...] = not_negative((1, 1, 1))
    pool: bool = True
    head: str = one_of("flatten", "average", "dense")
    hidden: int = scalable(640)

    PER_LAYER = ("strides", "paddings")


class BaselineCNN(Model):
    """Convolutions with ReLU, all but the first with batch normalisation, and a head.

    Tsai et al. 2020, tables 2, 3 and 12. 18,919,434 parameters for CIFAR-10.
    """

    def build(self, config: BaselineCNNConfig, rngs: nnx.Rngs) -> None:
        windows = [Window(3, *each) for each in zip(config.strides, config.paddings, strict=True)]
        first, *others = windows
        pooling = [Window(2, 2)] if config.pool else []
        all_windows = [first, *(each for window in others for each in (window, *pooling))]
        height, width = grids(self.input_shape, all_windows)[-1]
        self.pool, self.head = config.pool, config.head
        features = [self.input_shape[-1], *(config.features for _ in windows)]
        he_normal = nnx.initializers.he_normal()
        self.convs = convolutions(features, windows, kernel_init=he_normal, rngs=rngs)
        self.norms = nnx.List([batch_norm(n, rngs=rngs) for n in features[2:]])
        size = config.features * (1 if config.head == "average" else height * width)
        self.dense = nnx.data(None)
        if config.head != "flatten":
            self.dense = nnx.Linear(size, config.hidden, rngs=rngs)
            size = config.hidden
        self.classifier = nnx.Linear(size, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1" … and, if there is one, "dense"."""
        x = nnx.relu(self.convs[0](images))
        captured = {"conv1": x}
        for i, (conv, norm) in enumerate(zip(self.convs[1:], self.norms, strict=True), start=2):
            x = captured[f"conv{i}"] = norm(nnx.relu(conv(x)))
            if self.pool:
                x = nnx.avg_pool(x, (2, 2), (2, 2))
        if self.head != "average":
            x = lax.collapse(x, 1)
        if self.dense is not None:
            x = self.dense(x)
            if self.head == "average":
                x = jnp.mean(x, axis=(1, 2))
            captured["dense"] = x
        return Output(self.classifier(x), features=captured, score_kind=ScoreKind.LOGITS)


@dataclass(frozen=True)
class ResNetConfig(Normalization):
    """Sizes of a ResNet for small images; the defaults are those of ResNet-18.

    Attributes:
      features: channels of the four stages; all but the first halve the map.
      blocks: residual blocks of each stage.
    """

    features: tuple[int, ...] = scalable((64, 128, 256, 512))
    blocks: tuple[int, ...] = positive((2, 2, 2, 2))

    PER_LAYER = ("features", "blocks")


class ResNet(Model):
    """A residual network and the mean over positions (He et al. 2016).

    The variant for CIFAR: a 3×3 stem and no pooling before the blocks, so that any image is large
    enough. 11,173,962 parameters for CIFAR-10.
    """

    def build(self, config: ResNetConfig, rngs: nnx.Rngs) -> None:
        strides = [1, *(2 for _ in config.features[1:])]
        stages = list(zip(config.features, config.blocks, strides, strict=True))
        self.backbone = ResNetBackbone(self.input_shape[-1], stages, rngs=rngs)
        self.classifier = nnx.Linear(self.backbone.out_features, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures the last feature map, "backbone"."""
        x = self.backbone(images)
        scores = self.classifier(jnp.mean(x, axis=(1, 2)))
        return Output(scores, features={"backbone": x}, score_kind=ScoreKind.LOGITS)


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
_CR = ReconstructingConvNetConfig()
_R = replace(_CR, classifier="linear", reconstruction="normal")
_CR_SF = replace(_CR, classifier="length", squash=True)
_CIFAR, _MULTIMNIST = (32, 32, 3), (36, 36, 1)
_BASELINE = BaselineCNNConfig()
_DIVERSE = BaselineCNNConfig(strides=(2, 2, 1), paddings=(1, 0, 0), pool=False, head="average")
_DIVERSE_DENSE = replace(_DIVERSE, head="dense")

NETWORKS = {
    "sabour2017_cnn_multimnist": Network(PooledCNN, PooledCNNConfig(), _MULTIMNIST, 10, "24.56M"),
    "gu2021_convnet_avg": Network(ConvNet, _AVG, (40, 40, 1), 10, "5.3M"),
    "gu2021_convnet_fc": Network(ConvNet, _FC, (40, 40, 1), 10, "35.4M"),
    "gu2021_convnet_fc_lk": Network(ConvNet, _FC_LK, _MULTIMNIST),
    "gu2021_convnet_r": Network(ReconstructingConvNet, _R),
    # "The same number of parameters as in CapsNet", and the dense layer's bias.
    "gu2021_convnet_cr": Network(ReconstructingConvNet, _CR),
    "gu2021_convnet_cr_sf": Network(ReconstructingConvNet, _CR_SF),
    "tsai2020_cnn_cifar10": Network(BaselineCNN, _BASELINE, _CIFAR, 10, "18.92M"),
    "tsai2020_cnn_cifar100": Network(BaselineCNN, _BASELINE, _CIFAR, 100, "19.01M"),
    "tsai2020_cnn_diverse": Network(BaselineCNN, _DIVERSE, _MULTIMNIST, 10, "19.55M"),
    "tsai2020_cnn_diverse_dense": Network(BaselineCNN, _DIVERSE_DENSE, _MULTIMNIST, 10, "42.49M"),
    "tsai2020_resnet18_cifar10": Network(ResNet, ResNetConfig(), _CIFAR, 10, "11.17M"),
    "tsai2020_resnet18_cifar100": Network(ResNet, ResNetConfig(), _CIFAR, 100, "11.22M"),
}
