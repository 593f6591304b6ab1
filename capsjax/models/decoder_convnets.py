"""ConvNets with CapsNet's decoder, to find out what makes codes semantic (Gu et al. 2021, 3.3)."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from flax import nnx
from jax import lax

from capsjax.functional import safe_norm, squash
from capsjax.models.config import one_of, positive, scaled
from capsjax.models.grids import Window, convolutions, grids
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


_CR = ReconstructingConvNetConfig()
_R = replace(_CR, classifier="linear", reconstruction="normal")
_CR_SF = replace(_CR, classifier="length", squash=True)

# "The same number of parameters as in CapsNet", and the dense layer's bias.
NETWORKS = {
    "gu2021_convnet_r": Network(ReconstructingConvNet, _R),
    "gu2021_convnet_cr": Network(ReconstructingConvNet, _CR),
    "gu2021_convnet_cr_sf": Network(ReconstructingConvNet, _CR_SF),
}
