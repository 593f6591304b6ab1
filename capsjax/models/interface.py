"""What every model takes and returns."""

import enum
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from capsjax.routing import Routed


@jax.tree_util.register_static
class ScoreKind(enum.Enum):
    """What the scores of a model are. Static: part of the structure of an output, not of its data.

    LENGTHS: of class capsules, |p_k|: in [0, 1) where squash made them, and a class is present
      above one half.
    LOGITS: any number; a class is present above zero.
    """

    LENGTHS = "lengths"
    LOGITS = "logits"


class Output(NamedTuple):
    """The result of a model for a batch of n images.

    Attributes:
      scores: what the loss and the accuracy use; the higher, the likelier the class.
      poses: the poses of the class capsules, None for networks without.
      reconstruction: the decoder's image in [0, 1], None without a decoder; one for each mask
        where a model is given several.
      routed: by layer name, what each routing returned (poses and couplings); empty unless
        asked for with `capture=True`.
      features: by layer name, from the images up, what each layer made (poses for capsules, maps
        or vectors for others); empty unless asked for with `capture=True`.
      score_kind: what the scores are.
    """

    scores: Float[Array, "n classes"]
    poses: Float[Array, "n classes d"] | None = None
    reconstruction: Float[Array, "n *targets h w c"] | None = None
    routed: dict[str, Routed] = {}  # noqa: RUF012 (never mutated: models build a new one)
    features: dict[str, Float[Array, "n ..."]] = {}  # noqa: RUF012
    score_kind: ScoreKind = ScoreKind.LENGTHS


class Network(NamedTuple):
    """A named network: its class, its sizes, and where it was published.

    Attributes:
      model: called as `model(input_shape, num_classes, config, rngs=rngs)`.
      config: a frozen dataclass; its fields are the options of `models.create`.
      input_shape: height, width and channels in the paper.
      num_classes: in the paper.
      parameters: the count that the paper prints, or that its text fixes, as it gives it; None
        where it gives none.
    """

    model: type
    config: Any
    input_shape: tuple[int, int, int] = (28, 28, 1)
    num_classes: int = 10
    parameters: str | None = None


def check_images(images: Array, input_shape: tuple[int, int, int]) -> None:
    """Raises ValueError unless `images` is a batch of images of `input_shape`."""
    if images.ndim != 4 or images.shape[1:] != input_shape:
        wanted = ", ".join(map(str, input_shape))
        raise ValueError(
            f"images must have shape [n, {wanted}], got {list(images.shape)}; "
            "one image needs a leading axis: images[None]"
        )
