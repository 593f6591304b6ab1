"""Networks that reconstruct their input from class poses, and a forward pass most of them share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

from capsjax import layers
from capsjax.functional import safe_norm
from capsjax.models.config import Config, one_of, positive, scalable
from capsjax.models.grids import Window, grids
from capsjax.models.model import Keys, Mask, Model, Output, Pixels
from capsjax.routing import Routed


@dataclass(frozen=True)
class Reconstruction(Config):
    """Options of networks that can reconstruct their input.

    Attributes:
      reconstruction: "conditional": the decoder sees the poses of the masked classes; "normal": it
        sees all poses; "none": there is no decoder.
      decoder_features: sizes of the decoder's hidden layers.
    """

    reconstruction: str = one_of("conditional", "normal", "none")
    decoder_features: tuple[int, ...] = scalable((512, 1024))


@dataclass(frozen=True)
class CapsuleSizes(Config):
    """Sizes of primary and class capsules; the defaults are those of Sabour et al. 2017.

    Attributes:
      features: channels of the first convolution.
      primary_channels: capsules per position of the primary capsules.
      primary_pose: size of the primary capsules.
      class_pose: size of the class capsules.
      num_iterations: r, of dynamic routing.
    """

    features: int = scalable(256)
    primary_channels: int = scalable(32)
    primary_pose: int = positive(8)
    class_pose: int = positive(16)
    num_iterations: int = positive(3)


class ReconstructingModel(Model):
    """A network with a decoder; `build` calls `build_decoder`, and `forward` `reconstruct`."""

    decoder: layers.Decoder | None = None
    conditional = True

    def build_decoder(self, config: Reconstruction, pose_size: int, rngs: nnx.Rngs) -> None:
        self.conditional = config.reconstruction == "conditional"
        if config.reconstruction != "none":
            features = config.decoder_features
            self.decoder = layers.Decoder(
                self.num_classes, pose_size, self.input_shape, features=features, rngs=rngs
            )

    def reconstruct(
        self, poses: Float[Array, "n classes d"], scores: Float[Array, "n classes"], mask: Mask
    ) -> Float[Array, "n ... h w c"] | None:
        """Reconstructs in one of the settings of Gu et al. 2021; returns None without a decoder.

        Conditional: the decoder sees the classes in `mask`, or without a mask the class with the
        highest score. Otherwise it sees all.
        """
        if self.decoder is None:
            return None
        if not self.conditional:
            return self.decoder(poses)
        if mask is None:
            mask = jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])
        return self.decoder(poses, mask)


class CapsuleChain(ReconstructingModel):
    """A feature map, primary capsules, layers of capsules; scores are the lengths of the last."""

    map_name = "conv"  # under which the feature map is captured
    conv: Callable[[Array], Array]
    primary: Callable[[Array], Array]  # from the map to primary capsules
    classes: Callable[[Array], Routed]

    def build_primary(self, config: Any, rngs: nnx.Rngs, **options: Any) -> int:
        """Makes a convolution and primary capsules (stride 2); returns the number of capsules."""
        k = config.kernel_size
        height, width = grids(self.input_shape, [Window(k), Window(k, 2)])[-1]
        self.conv = layers.conv2d(self.input_shape[-1], config.features, k, rngs=rngs)
        sizes = config.features, config.primary_channels, config.primary_pose
        self.primary = layers.PrimaryCapsules(*sizes, kernel_size=k, rngs=rngs, **options)
        return height * width * config.primary_channels

    def build_classes(self, children: int, config: Any, rngs: nnx.Rngs, **options: Any) -> None:
        """Makes the class capsules above `children` primary capsules."""
        sizes = children, config.primary_pose, self.num_classes, config.class_pose
        self.classes = layers.DenseCapsules(*sizes, rngs=rngs, **options)

    def feature_map(self, images: Pixels) -> Float[Array, "n rows columns f"]:
        """Returns what the primary capsules see."""
        return nnx.relu(self.conv(images))

    def between(self) -> Mapping[str, Callable[[Array], Routed]]:
        """Returns the layers of capsules between the primary and the class capsules, by name."""
        return {}

    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """See `Model`; captures the map, "primary", what is between, and "classes"."""
        features = {self.map_name: self.feature_map(images)}
        poses = features["primary"] = self.primary(features[self.map_name])
        routed = {}
        for name, layer in {**self.between(), "classes": self.classes}.items():
            if not isinstance(layer, layers.ConvCapsules):
                poses = lax.collapse(poses, 1, -1)
            routed[name] = layer(poses)
            poses = features[name] = routed[name].poses
        lengths = safe_norm(poses)
        return Output(lengths, poses, self.reconstruct(poses, lengths, mask), routed, features)
