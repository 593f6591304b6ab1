"""CapsNet (Sabour et al. 2017) and its ablations (Gu et al. 2021): one network, five switches.

Four are options of the network; the fifth, the loss, belongs to training.
"""

from dataclasses import dataclass, replace

from flax import nnx

from capsjax.functional import exponential_squash, identity, relu, squash
from capsjax.layers.bound import bound
from capsjax.models.config import Normalization, one_of, positive
from capsjax.models.model import Network
from capsjax.models.reconstruction import CapsuleChain, CapsuleSizes, Reconstruction
from capsjax.routing import dynamic_routing, uniform_routing

_SQUASHES = {"rational": squash, "exponential": exponential_squash}


@dataclass(frozen=True)
class CapsNetConfig(Normalization, Reconstruction, CapsuleSizes):
    """Sizes and switches of a CapsNet; the defaults are those of Sabour et al.

    Attributes:
      kernel_size: of both convolutions (stride 1, then 2, no padding).
      routing: "dynamic", or "uniform" (NoR: no routing).
      routing_bias: a learned bias in the class capsules, as in the released code.
      shared_transform: one transform for all primary capsules (Aff-CapsNet).
      squash: whether to squash the primary and the class capsules.
      squash_form: "rational" (Sabour et al., eq. 1) or "exponential" (Choi et al. 2019, eq. 2).
      primary_relu: ReLU after the second convolution too, below its squash (Gu et al. 2021).
    """

    kernel_size: int = positive(9)
    routing: str = one_of("dynamic", "uniform")
    routing_bias: bool = False
    shared_transform: bool = False
    squash: bool = True
    squash_form: str = one_of(*_SQUASHES)
    primary_relu: bool = False


class CapsNet(CapsuleChain):
    """Two convolutions, primary capsules, class capsules by routing, a decoder.

    Sabour et al. 2017, figures 1 and 2. 8,215,568 parameters for 28×28×1 and ten classes.
    """

    def build(self, config: CapsNetConfig, rngs: nnx.Rngs) -> None:
        activation = _SQUASHES[config.squash_form] if config.squash else identity
        routing = bound(uniform_routing, activation=activation)
        if config.routing == "dynamic":
            r = config.num_iterations
            routing = bound(dynamic_routing, activation=activation, num_iterations=r)
        of_primary = nnx.Sequential(relu, activation) if config.primary_relu else activation
        children = self.build_primary(config, rngs, activation=of_primary)
        switches = {"shared": config.shared_transform, "use_bias": config.routing_bias}
        init = nnx.initializers.truncated_normal(0.1)  # as in the released code
        self.build_classes(children, config, rngs, routing=routing, kernel_init=init, **switches)
        self.build_decoder(config, config.class_pose, rngs)


_SABOUR2017 = CapsNetConfig()
_NOR = replace(_SABOUR2017, routing="uniform")
_AFF = replace(_NOR, shared_transform=True)
_AFF_DR = replace(_AFF, routing="dynamic")

# "DR" and "NoR" (with and without dynamic routing) are the papers' abbreviations.
NETWORKS = {
    "sabour2017_capsnet": Network(CapsNet, _SABOUR2017, parameters="8,215,568"),
    "gu2021_capsnet": Network(CapsNet, _SABOUR2017, (40, 40, 1), parameters="13.5M"),
    "gu2021_capsnet_nor": Network(CapsNet, _NOR, (40, 40, 1), parameters="13.5M"),
    "gu2021_aff_capsnet": Network(CapsNet, _AFF, (40, 40, 1), parameters="7.5M"),
    "gu2021_aff_capsnet_dr": Network(CapsNet, _AFF_DR, (40, 40, 1), parameters="7.5M"),
}
