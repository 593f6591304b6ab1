"""What every model takes and returns."""

from typing import NamedTuple

from jaxtyping import Array, Float

from capsjax.routing import Routed


class Output(NamedTuple):
    """The result of a model for a batch of n images.

    Attributes:
      scores: what the loss and the accuracy use; for capsules whose length means presence, the
        lengths of the class poses.
      poses: the poses of the class capsules, None for networks without.
      reconstruction: the decoder's image in [0, 1], None without a decoder.
      routed: by layer name, what each routing returned (poses and couplings); empty unless
        asked for with `capture=True`.
    """

    scores: Float[Array, "n classes"]
    poses: Float[Array, "n classes d"] | None = None
    reconstruction: Float[Array, "n h w c"] | None = None
    routed: dict[str, Routed] = {}  # noqa: RUF012 (never mutated: models build a new one)


def check_images(images: Array, input_shape: tuple[int, int, int]) -> None:
    """Raises ValueError unless `images` is a batch of images of `input_shape`."""
    if images.ndim != 4 or images.shape[1:] != input_shape:
        wanted = ", ".join(map(str, input_shape))
        raise ValueError(
            f"images must have shape [n, {wanted}], got {list(images.shape)}; "
            "one image needs a leading axis: images[None]"
        )
