"""Attention routing between capsules: coupling from all input channels at once, in one pass."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32, check_floating, type_of_sums
from capsjax.routing.routed import Routed


def attention_routing(
    transformed: Float[Array | np.ndarray, "*batch N D"], kernel: Float[Array | np.ndarray, "D N N"]
) -> Routed:
    """Routes by attention into one output channel (Choi et al. 2019, eq. 6 to 8).

      b_m = Σ_m'd K_dm'm s̃_m'd
      c   = softmax_m(b)                    over the input channels
      s   = Σ_m c_m s̃_m

    The capsule activation that follows, tanh of a D×D map, is the layer's. Each output channel n
    has its own s̃ and K; `jax.vmap` gives them all, from [..., N, J, D] and [J, D, N, N]:

      jax.vmap(attention_routing, in_axes=(-2, 0), out_axes=Routed(-2, -1, None))

    Args:
      transformed: the input channels' poses s̃_m after this output channel's convolution.
      kernel: K of this output channel; the last axis is the channel m that b_m belongs to.

    Returns:
      Poses [..., D], and coupling [..., N] in place of Routed's [..., J, D] and [..., I, J]: there
      is one parent.
    """
    check_floating("transformed", transformed)
    check_floating("kernel", kernel)
    channels, size = transformed.shape[-2:] if transformed.ndim > 1 else (0, 0)
    if kernel.shape != (size, channels, channels):
        raise ValueError(
            f"transformed must be [..., N, D] (input channels, pose size) and kernel [D, N, N], "
            f"got {transformed.shape} and {kernel.shape}; several output channels are mapped with "
            f"jax.vmap."
        )
    wide = type_of_sums(transformed, kernel)
    # One matrix product [..., N·D] × [N·D, N].
    flat = transformed.reshape(*transformed.shape[:-2], channels * size)
    matrix = jnp.swapaxes(kernel, 0, 1).reshape(channels * size, channels)
    logits = jnp.matmul(flat, matrix, preferred_element_type=wide)
    coupling = jax.nn.softmax(logits, axis=-1)
    poses = jnp.sum(coupling[..., None] * at_least_float32(transformed), axis=-2)
    return Routed(poses.astype(jnp.result_type(transformed)), coupling)
