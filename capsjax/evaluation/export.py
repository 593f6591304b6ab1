"""A trained network as one file that needs only JAX to run."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import export as jax_export
from jaxtyping import Array, Float, UInt8

from capsjax.evaluation.batches import merged

PLATFORMS = ("cpu", "cuda", "tpu")


def export_scores(model: nnx.Module, input_shape: tuple[int, int, int]) -> bytes:
    """Serialises the function from uint8 images [b, h, w, c], for any b, to scores [b, classes].

    It contains the parameters. To run it from a file, on any of `PLATFORMS`:

      scores = jax.export.deserialize(bytearray(contents)).call(images)
    """
    graphdef, state = nnx.split(model)

    @jax.jit
    def scores(images: UInt8[Array, "b h w c"]) -> Float[Array, "b classes"]:
        return merged(graphdef, state)(images).scores

    (batch,) = jax_export.symbolic_shape("b")
    images = jax.ShapeDtypeStruct((batch, *input_shape), jnp.uint8)
    return bytes(jax_export.export(scores, platforms=PLATFORMS)(images).serialize())
