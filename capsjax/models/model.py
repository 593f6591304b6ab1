"""What every network takes and returns."""

import enum
from abc import abstractmethod
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Key, UInt8

from capsjax.functional import check_array, normalize, to_unit
from capsjax.models.config import Config, Normalization
from capsjax.routing import Routed

# A batch of images: floats in [0, 1], or uint8.
Images = Float[Array | np.ndarray, "n h w c"] | UInt8[Array | np.ndarray, "n h w c"]
# The same as the layers see them: floats, normalised where the network does that.
Pixels = Float[Array, "n h w c"]
# The classes to reconstruct, and keys for dropout; see `Model.__call__`.
Mask = Float[Array, "n *targets classes"] | None
Keys = Key[Array, "n"] | None


@jax.tree_util.register_static
class ScoreKind(enum.Enum):
    """What the scores of a model are. Static: part of the structure of an output, not of its data.

    LENGTHS are lengths |p_k| or activations of class capsules. They are in [0, 1] (unless there is
    no squash), and a class is present above one half; for LOGITS it is present above zero.
    """

    LENGTHS = "lengths"
    LOGITS = "logits"


class Output(NamedTuple):
    """The result of a model for a batch of n images.

    Attributes:
      scores: what the loss and the accuracy use; the higher, the likelier the class.
      poses: the poses of the class capsules, None for networks that have none.
      reconstruction: the decoder's image, in [0, 1] but for slots, or None; one for each mask
        if the model is given several.
      routed: by layer name, what each routing returned; empty unless with `capture=True`.
      features: by layer name, from the images up, the output of each layer (poses of capsules,
        else maps or vectors); empty unless with `capture=True`.
      score_kind: what the scores are.
    """

    scores: Float[Array, "n classes"]
    poses: Float[Array, "n classes d"] | None = None
    reconstruction: Float[Array, "n *targets h w c"] | None = None
    routed: dict[str, Routed] = {}  # noqa: RUF012 (never mutated: models build a new one)
    features: dict[str, Float[Array, "n ..."]] = {}  # noqa: RUF012
    score_kind: ScoreKind = ScoreKind.LENGTHS


class Model(nnx.Module):
    """A network from images to class scores.

    A subclass makes its layers in `build` and uses them in `forward`. A network of your own need
    not be a subclass: it is enough that it is called in this way and returns an `Output`.
    """

    input_shape: tuple[int, int, int]  #: height, width and channels of an image
    num_classes: int
    mean: tuple[float, ...] = ()  #: by channel; see `Normalization`
    std: tuple[float, ...] = ()

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, config: Any, *, rngs: nnx.Rngs
    ):
        if isinstance(config, Config):
            config = config.narrowed()
        height, width, channels = input_shape
        self.input_shape = height, width, channels
        self.num_classes = num_classes
        if isinstance(config, Normalization) and (config.mean or config.std):
            self.mean, self.std = config.mean, config.std
        self.build(config, rngs)

    def build(self, config: Any, rngs: nnx.Rngs) -> None:
        """Makes the layers."""

    def __call__(
        self, images: Images, *, mask: Mask = None, keys: Keys = None, capture: bool = False
    ) -> Output:
        """Classifies a batch and, with a decoder, reconstructs it.

        Args:
          images: floats in [0, 1], or uint8, which are scaled to [0, 1].
          mask: the classes whose poses a conditional decoder sees: the true class in training, one
            mask for each object where several are to be reconstructed. None: the class with the
            highest score.
          keys: one per image, for dropout; None for no dropout.
          capture: whether to return `routed` and `features`.
        """
        check_array("images", images)
        if images.ndim != 4 or images.shape[1:] != self.input_shape:
            wanted = ", ".join(map(str, self.input_shape))
            hint = ""
            if images.shape == self.input_shape:
                hint = "; one image needs a leading axis: images[None]"
            elif (*images.shape[1:], 1) == self.input_shape:
                hint = "; grey images need an axis of channels: images[..., None]"
            raise ValueError(f"images must be [n, {wanted}], got {list(images.shape)}{hint}")
        if keys is not None and keys.shape != images.shape[:1]:
            wanted = f"jax.random.split(jax.random.key(0), {len(images)})"
            raise ValueError(f"keys must be one per image, {wanted}; got shape {keys.shape}")
        normalized = self.mean or self.std
        pixels = normalize(images, self.mean, self.std) if normalized else to_unit(images)
        output = self.forward(pixels, mask=mask, keys=keys, capture=capture)
        return output if capture else output._replace(routed={}, features={})

    @abstractmethod
    def forward(self, images: Pixels, *, mask: Mask, keys: Keys, capture: bool) -> Output:
        """Returns the output for images as floats; `__call__` drops captures not asked for."""


class Network(NamedTuple):
    """A named network: its class, its options, and what the paper says of it."""

    model: type  #: called as `model(input_shape, num_classes, config, rngs=rngs)`
    config: Any  #: a frozen dataclass; its fields are the options of `models.create`
    input_shape: tuple[int, int, int] = (28, 28, 1)  #: height, width and channels
    num_classes: int = 10
    parameters: str | None = None  #: the count that is printed, or that follows from the text
