"""The decoder of a network: its options, and how it is built from them."""

from dataclasses import dataclass

from flax import nnx

from capsjax.layers import Decoder
from capsjax.models.config import Config, one_of, positive, scaled


@dataclass(frozen=True)
class Reconstruction(Config):
    """Options of networks that can reconstruct their input.

    Attributes:
      reconstruction: "conditional": the decoder sees the poses of the masked classes; "normal": it
        sees all poses; "none": there is no decoder.
      decoder_features: sizes of the decoder's hidden layers.
    """

    reconstruction: str = one_of("conditional", "normal", "none")
    decoder_features: tuple[int, ...] = positive((512, 1024))


def build_decoder(
    config: Reconstruction,
    num_classes: int,
    pose_size: int,
    image_shape: tuple[int, int, int],
    *,
    rngs: nnx.Rngs,
) -> Decoder | None:
    """A decoder from class poses to images, or None if `config` asks for none."""
    if config.reconstruction == "none":
        return None
    features = [scaled(n, config.width) for n in config.decoder_features]
    return Decoder(num_classes, pose_size, image_shape, features=features, rngs=rngs)
