"""Networks that reconstruct their input from class poses."""

from dataclasses import dataclass

from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers import ConvDecoder, Decoder, reconstruct
from capsjax.models.config import Config, one_of, positive, scaled
from capsjax.models.model import Mask, Model


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


class ReconstructingModel(Model):
    """A network with a decoder; `build` calls `build_decoder`, and `forward` `reconstruct`.

    Attributes:
      decoder: None if the options ask for none.
      conditional: whether it sees only the poses of the masked classes.
    """

    def build_decoder(self, config: Reconstruction, pose_size: int, rngs: nnx.Rngs) -> None:
        """Makes the decoder that `config` asks for, for class poses of this size."""
        self.conditional = config.reconstruction == "conditional"
        self.decoder: Decoder | ConvDecoder | None = nnx.data(None)
        if config.reconstruction != "none":
            features = [scaled(n, config.width) for n in config.decoder_features]
            self.decoder = Decoder(
                self.num_classes, pose_size, self.input_shape, features=features, rngs=rngs
            )

    def reconstruct(
        self, poses: Float[Array, "n classes d"], scores: Float[Array, "n classes"], mask: Mask
    ) -> Float[Array, "n ... h w c"] | None:
        """The reconstruction of the classes in `mask`, of the predicted ones without a mask."""
        return reconstruct(self.decoder, poses, scores, mask, conditional=self.conditional)
