"""The CNN that CapsNet is compared with on overlapping digits (Sabour et al. 2017)."""

from dataclasses import dataclass

from flax import nnx
from jax import lax

from capsjax.layers import conv2d
from capsjax.models.config import Config, check_lengths, positive, scaled
from capsjax.models.model import Keys, Mask, Model, Network, Output, Pixels, ScoreKind


@dataclass(frozen=True)
class PooledCNNConfig(Config):
    """Sizes of a CNN with pooling; the defaults are those for MultiMNIST.

    Attributes:
      features: channels of each convolution (stride 1, padded), each followed by 2×2 max-pooling.
      kernel_sizes: of each convolution.
      dense_features: units of the dense layer below the classes.
    """

    features: tuple[int, ...] = positive((512, 256))
    kernel_sizes: tuple[int, ...] = positive((9, 5))
    dense_features: int = positive(1024)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lengths(features=self.features, kernel_sizes=self.kernel_sizes)


class PooledCNN(Model):
    """Padded convolutions with ReLU and max-pooling, a dense layer with ReLU, logits.

    The original paper gives 512 kernels of 9×9, 256 of 5×5, 2×2 pooling after each, 1024 units and
    24.56M parameters. It does not mention padding, but only with it do these sizes have 24,563,978.
    """

    options = PooledCNNConfig()

    def build(self, config: PooledCNNConfig, rngs: nnx.Rngs) -> None:
        height, width, size = self.input_shape
        halvings = 2 ** len(config.features)
        if min(height, width) < halvings:
            raise ValueError(
                f"input_shape {height}×{width} is too small to be halved {len(config.features)} "
                f"times: the smallest is {halvings}×{halvings}; enlarge the images"
            )
        convs = []
        for features, kernel_size in zip(config.features, config.kernel_sizes, strict=True):
            features = scaled(features, config.width)
            convs.append(conv2d(size, features, kernel_size, padding="SAME", rngs=rngs))
            size = features
        self.convs = nnx.List(convs)
        size *= (height // halvings) * (width // halvings)
        hidden = scaled(config.dense_features, config.width)
        self.dense = nnx.Linear(size, hidden, rngs=rngs)
        self.classes = nnx.Linear(hidden, self.num_classes, rngs=rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1" …, "dense"."""
        captured = {}
        x = images
        for i, conv in enumerate(self.convs, 1):
            x = captured[f"conv{i}"] = nnx.max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        x = captured["dense"] = nnx.relu(self.dense(lax.collapse(x, 1)))
        logits = self.classes(x)
        return Output(logits, features=captured, score_kind=ScoreKind.LOGITS)


NETWORKS = {
    "sabour2017_cnn_multimnist": Network(
        PooledCNN, PooledCNNConfig(), (36, 36, 1), parameters="24.56M"
    )
}
