"""ConvNets with CapsNet's decoder, to find out what makes codes semantic (Gu et al. 2021, 3.3)."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from capsjax.functional import safe_norm, squash
from capsjax.layers import conv2d
from capsjax.models.config import one_of, positive, scaled
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Network, Output, Pixels, ScoreKind
from capsjax.models.reconstruction import ReconstructingModel, Reconstruction


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
      reconstruction: "conditional": the decoder sees the units of the masked classes; "normal": it
        sees all.
    """

    features: int = positive(256)
    kernel_size: int = positive(9)
    class_units: int = positive(16)
    classifier: str = one_of("sum", "length", "linear")
    squash: bool = False
    squash_pose: int = positive(8)
    reconstruction: str = one_of("conditional", "normal")


class ReconstructingConvNet(ReconstructingModel):
    """The two convolutions of CapsNet, one dense layer, and CapsNet's decoder on its units.

    ConvNet-R, -CR and -CR-SF. The units are not rectified, although the text says that all dense
    layers are: the sigmoid of a sum of rectified units could not be below one half. 8,215,728
    parameters for 28×28×1 and ten classes: CapsNet's and the dense layer's bias.
    """

    options = ReconstructingConvNetConfig()

    def build(self, config: ReconstructingConvNetConfig, rngs: nnx.Rngs) -> None:
        k = config.kernel_size
        height, width = grids(self.input_shape, [Window(k), Window(k, 2)])[-1]
        features = scaled(config.features, config.width)
        if config.squash:  # a whole number of poses, at any width
            features = scaled(config.features // config.squash_pose, config.width)
            features *= config.squash_pose
        units = self.num_classes * config.class_units
        self.classifier = config.classifier
        self.squash_pose = config.squash_pose if config.squash else None
        self.convs = nnx.List(
            [
                conv2d(self.input_shape[-1], features, k, rngs=rngs),
                conv2d(features, features, k, strides=2, rngs=rngs),
            ]
        )
        self.dense = nnx.Linear(height * width * features, units, rngs=rngs)
        self.linear = nnx.data(None)
        if config.classifier == "linear":
            self.linear = nnx.Linear(units, self.num_classes, rngs=rngs)
        self.build_decoder(config, config.class_units, rngs)

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures "conv1", "conv2" and "classes".

        The poses are the dense layer's units by class. With a linear classifier the units belong
        to no class; row k of the poses then holds the k-th group of units.
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
        scores, kind = self._classify(poses)
        reconstruction = self.reconstruct(poses, scores, mask)
        captured = {"conv1": first, "conv2": second, "classes": poses}
        return Output(scores, poses, reconstruction, features=captured, score_kind=kind)

    def _classify(
        self, poses: Float[Array, "n classes d"]
    ) -> tuple[Float[Array, "n classes"], ScoreKind]:
        if self.linear is not None:
            return self.linear(lax.collapse(poses, 1)), ScoreKind.LOGITS
        if self.classifier == "length":
            return safe_norm(poses), ScoreKind.LENGTHS
        return jnp.sum(poses, axis=-1), ScoreKind.LOGITS


_CR = ReconstructingConvNetConfig()

NETWORKS = {
    "gu2021_convnet_r": Network(
        ReconstructingConvNet, replace(_CR, classifier="linear", reconstruction="normal")
    ),
    # "the same number of parameters as in CapsNet", and the dense layer's bias
    "gu2021_convnet_cr": Network(ReconstructingConvNet, _CR),
    "gu2021_convnet_cr_sf": Network(
        ReconstructingConvNet, replace(_CR, classifier="length", squash=True)
    ),
}
