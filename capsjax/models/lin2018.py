"""Deep CapsNets and CNNs whose representations are compared layer by layer (Lin et al. 2018).

The paper's figure shows a convolution and three layers of capsules with two routings, R1 and R2,
and no sizes. The sizes of the convolution, the primary and the class capsules are taken from
Sabour et al. 2017, whose network it is said to resemble. The CNN has as many neurons in each layer
between the image and the classes.
"""

from dataclasses import dataclass, replace

from flax import nnx

from capsjax.layers import DenseCapsules
from capsjax.layers.bound import bound
from capsjax.models.config import Config, fraction, positive, scaled
from capsjax.models.convnets import ConvNet, ConvNetConfig
from capsjax.models.model import Network
from capsjax.models.reconstruction import CapsuleChain
from capsjax.routing import dynamic_routing


@dataclass(frozen=True)
class DeepCapsNetConfig(Config):
    """Sizes of a deep CapsNet.

    Attributes:
      features: channels of the convolution.
      kernel_size: of both convolutions (stride 1, then 2, no padding).
      primary_channels: capsules per position of the primary capsules.
      primary_pose: size of the primary capsules.
      middle_capsules: number of capsules of each layer between primary and class capsules.
      middle_pose: size of these capsules.
      class_pose: size of the class capsules.
      num_iterations: r, of every routing (n_EM in the paper).
      update_rate: η, of every routing; 1 is plain dynamic routing.
    """

    features: int = positive(256)
    kernel_size: int = positive(9)
    primary_channels: int = positive(32)
    primary_pose: int = positive(8)
    middle_capsules: tuple[int, ...] = positive((32,))
    middle_pose: int = positive(8)
    class_pose: int = positive(16)
    num_iterations: int = positive(3)
    update_rate: float = fraction(1.0)


class DeepCapsNet(CapsuleChain):
    """A convolution, primary capsules, and layers of capsules with dynamic routing between them.

    Lin et al. 2018, figure 1 (its Cap1 is "capsules1" here). There is no decoder: the paper
    mentions none.
    """

    options = DeepCapsNetConfig()

    def build(self, config: DeepCapsNetConfig, rngs: nnx.Rngs) -> None:
        routing = bound(
            dynamic_routing, num_iterations=config.num_iterations, update_rate=config.update_rate
        )
        num, pose = self.build_primary(config, rngs), config.primary_pose
        middle = []
        for parents in config.middle_capsules:
            parents = scaled(parents, config.width)
            middle.append(
                DenseCapsules(num, pose, parents, config.middle_pose, routing=routing, rngs=rngs)
            )
            num, pose = parents, config.middle_pose
        self.capsules = nnx.List(middle)
        self.classes = DenseCapsules(
            num, pose, self.num_classes, config.class_pose, routing=routing, rngs=rngs
        )

    def between(self) -> dict[str, DenseCapsules]:
        """Captures "capsules1" (with R1's coupling) …."""
        return {f"capsules{i}": layer for i, layer in enumerate(self.capsules, 1)}


_DEEP = DeepCapsNetConfig()
_TWIN = ConvNetConfig(average_pool=False, dense_features=(256,))

# "Deeper": one layer more, for the transfer experiments (section 3.3).
NETWORKS = {
    "lin2018_capsnet": Network(DeepCapsNet, _DEEP, (36, 36, 1)),
    "lin2018_capsnet_deeper": Network(
        DeepCapsNet, replace(_DEEP, middle_capsules=(32, 32)), (36, 36, 1)
    ),
    "lin2018_cnn": Network(ConvNet, _TWIN, (36, 36, 1)),
    "lin2018_cnn_deeper": Network(ConvNet, replace(_TWIN, dense_features=(256, 256)), (36, 36, 1)),
}
