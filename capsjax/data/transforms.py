"""Pure functions on one example, to be vmapped over a batch inside the compiled step."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Num, PRNGKeyArray


def shift(key: PRNGKeyArray, image: Num[Array, "h w c"], max_shift: int) -> Num[Array, "h w c"]:
    """Moves an image by whole pixels, uniformly from −max_shift to max_shift along each axis.

    What moves in from outside is zero; what moves out is lost.

    Raises:
      ValueError: `image` is not [H, W, C] or `max_shift` is negative.
    """
    if image.ndim != 3:
        raise ValueError(
            f"image: expected one image [H, W, C], got shape {image.shape}; vmap over batches"
        )
    if max_shift < 0:
        raise ValueError(f"max_shift: expected 0 or more pixels, got {max_shift}")
    margin = (max_shift, max_shift)
    padded = jnp.pad(image, (margin, margin, (0, 0)))
    top, left = jax.random.randint(key, (2,), 0, 2 * max_shift + 1)
    return lax.dynamic_slice(padded, (top, left, 0), image.shape)
