"""Slot attention: slots compete for inputs, and each becomes a weighted mean of what it won."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from capsjax.functional import type_of_sums
from capsjax.routing._checks import (
    check_broadcast,
    check_floating,
    check_probabilities,
    check_scalar,
    check_sizes,
)
from capsjax.routing.routed import Routed
from capsjax.routing.votes import einsum


def slot_attention(
    inputs: Float[Array | np.ndarray, "*batch N D"],
    queries: Float[Array | np.ndarray, "*batch J K"],
    key_kernel: Float[Array | np.ndarray, "D K"],
    value_kernel: Float[Array | np.ndarray, "D V"],
    *,
    mask: Float[Array | np.ndarray, "..."] | Bool[Array | np.ndarray, "..."] | None = None,
    scale: float | Float[Array, ""] | None = None,
    epsilon: float = 1e-8,
) -> Routed:
    """One iteration of slot attention (Locatello et al. 2020).

      a_nj = m_n softmax_j(scale · <x_n W_k, q_j>)
      p_j  = Σ_n a_nj x_n W_v / (Σ_n a_nj + epsilon)

    It is `inverted_attention_routing` with one transform for all parents, keys that differ from
    values, and a weighted mean. Keys and values are never formed: <x W_k, q> = <x, W_k q>, and the
    mean is taken before W_v. The backward pass computes the couplings again, so nothing of their
    size is held between the passes. What follows it, a GRU and an MLP, is the layer's
    (`capsjax.layers.SlotAttention`).

    Args:
      inputs: x_n, as a rule layer-normalised.
      queries: q_j of the slots.
      key_kernel: W_k.
      value_kernel: W_v.
      mask: m_n in [0, 1], or booleans, broadcast to [..., N]: 0 for padding; None for 1. Checked
        where the values are concrete.
      scale: of the agreement, one number; None is 1/√K.
      epsilon: keeps a slot that wins nothing from dividing by 0: its pose is 0.

    Returns:
      Poses [..., J, V] and the coupling a [..., N, J].

    Raises:
      TypeError: an argument has the wrong type or an array is not floating.
      ValueError: an axis has length zero or does not fit, or mask values are outside [0, 1].
    """
    arrays = {
        "inputs": (inputs, ("N (inputs)", "D (input size)")),
        "queries": (queries, ("J (slots)", "K (query size)")),
        "key_kernel": (key_kernel, ("D (input size)", "K (query size)")),
        "value_kernel": (value_kernel, ("D (input size)", "V (value size)")),
    }
    sizes: dict[str, tuple[str, int]] = {}
    for name, (array, axes) in arrays.items():
        check_floating(name, array)
        if array.ndim < 2 or (array.ndim > 2 and name.endswith("kernel")):
            raise ValueError(f"{name} must have the axes {', '.join(axes)}, got {array.shape}.")
        check_sizes(name, array.shape, axes)
        for axis, size in zip(axes, array.shape[-2:], strict=True):
            other, expected = sizes.setdefault(axis, (name, size))
            if size != expected:
                raise ValueError(
                    f"the axis {axis} of {name} must have the length that it has in {other}, "
                    f"{expected}, got {name} {array.shape}."
                )
    if scale is None:
        scale = 1 / math.sqrt(queries.shape[-1])
    check_scalar("scale", scale, "multiply the queries by it where slots differ in it.")
    if mask is not None:
        mask = jnp.asarray(mask, inputs.dtype) if mask.dtype == bool else mask
        check_broadcast("mask", mask, inputs.shape[:-1], "[..., N]")
        check_probabilities("mask", mask)
    dtype = type_of_sums(inputs, queries, key_kernel)

    @jax.checkpoint
    def attend(x: Array, q: Array, w_k: Array, mask: Array | None) -> tuple[Array, Array]:
        # Slots before inputs: few slots in the last axis would be padded to a register's width.
        pulled = einsum("...jk,dk->...jd", q.astype(dtype) * jnp.asarray(scale, dtype), w_k)
        coupling = jax.nn.softmax(einsum("...jd,...nd->...jn", pulled, x), axis=-2)
        if mask is not None:
            coupling = coupling * mask[..., None, :].astype(dtype)
        sums = einsum("...jn,...nd->...jd", coupling, x)
        return sums / (jnp.sum(coupling, axis=-1, keepdims=True) + epsilon), coupling

    means, coupling = attend(inputs, queries, key_kernel, mask)
    poses = einsum("...jd,dv->...jv", means, jnp.asarray(value_kernel))
    return Routed(poses.astype(inputs.dtype), jnp.swapaxes(coupling, -1, -2))
