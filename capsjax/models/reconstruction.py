"""What a model's decoder is shown."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from capsjax.layers import Decoder


def reconstruct(
    decoder: Decoder | None,
    poses: Float[Array, "n classes d"],
    scores: Float[Array, "n classes"],
    mask: Float[Array, "n *targets classes"] | None,
    *,
    conditional: bool,
) -> Float[Array, "n *targets h w c"] | None:
    """What `decoder` makes of the class poses in each of the settings of Gu et al. 2021.

    Args:
      decoder: None for no reconstruction.
      poses: of all classes.
      scores: which class is the predicted one.
      mask: the classes that are seen; None for the predicted one.
      conditional: else all classes are seen, whatever the mask.
    """
    if decoder is None:
        return None
    if not conditional:
        return decoder(poses)
    if mask is None:
        mask = jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])
    return decoder(poses, mask)
