"""Deep CapsNets and CNNs whose representations are compared layer by layer (Lin et al. 2018).

The paper's figure shows a convolution and three layers of capsules with two routings, and no sizes.
They are taken from Sabour et al. 2017, whose network the paper says it resembles. The CNN has the
same number of neurons in each layer between the image and the classes.
"""

from dataclasses import dataclass, replace

from flax import nnx

from capsjax.layers import DenseCapsules
from capsjax.layers.bound import bound
from capsjax.models.config import fraction, positive, scalable
from capsjax.models.convnets import ConvNet, ConvNetConfig
from capsjax.models.model import Network
from capsjax.models.reconstruction import CapsuleChain, CapsuleSizes
from capsjax.routing import dynamic_routing


@dataclass(frozen=True)
class DeepCapsNetConfig(CapsuleSizes):
    """Sizes of a deep CapsNet. Its `num_iterations`, n_EM in the paper, are those of every routing.

    Attributes:
      kernel_size: of both convolutions (stride 1, then 2, no padding).
      middle_capsules: number of capsules of each layer between primary and class capsules.
      middle_pose: size of these capsules.
      update_rate: η, of every routing; 1 is plain dynamic routing.
    """

    kernel_size: int = positive(9)
    middle_capsules: tuple[int, ...] = scalable((32,))
    middle_pose: int = positive(8)
    update_rate: float = fraction(1.0)


class DeepCapsNet(CapsuleChain):
    """A convolution, primary capsules, and layers of capsules with dynamic routing between them.

    Lin et al. 2018, figure 1 (its Cap1 is "capsules1" here), which mentions no decoder.
    """

    def build(self, config: DeepCapsNetConfig, rngs: nnx.Rngs) -> None:
        routing = bound(
            dynamic_routing, num_iterations=config.num_iterations, update_rate=config.update_rate
        )
        children, pose = self.build_primary(config, rngs), config.primary_pose
        parents = [(number, config.middle_pose) for number in config.middle_capsules]
        layers = []
        for number, size in [*parents, (self.num_classes, config.class_pose)]:
            layers.append(DenseCapsules(children, pose, number, size, routing=routing, rngs=rngs))
            children, pose = number, size
        self.capsules, self.classes = nnx.List(layers[:-1]), layers[-1]

    def between(self) -> dict[str, DenseCapsules]:
        """Returns the middle layers, captured as "capsules1" (with R1's coupling) …."""
        return {f"capsules{i}": layer for i, layer in enumerate(self.capsules, 1)}


_DEEP = DeepCapsNetConfig()
_DEEPER = replace(_DEEP, middle_capsules=(32, 32))
_TWIN = ConvNetConfig(average_pool=False, dense_features=(256,))
_DEEPER_TWIN = replace(_TWIN, dense_features=(256, 256))

# "Deeper": one layer more, for the transfer experiments (section 3.3).
NETWORKS = {
    "lin2018_capsnet": Network(DeepCapsNet, _DEEP, (36, 36, 1)),
    "lin2018_capsnet_deeper": Network(DeepCapsNet, _DEEPER, (36, 36, 1)),
    "lin2018_cnn": Network(ConvNet, _TWIN, (36, 36, 1)),
    "lin2018_cnn_deeper": Network(ConvNet, _DEEPER_TWIN, (36, 36, 1)),
}
