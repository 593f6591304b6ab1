"""Slot attention: slots compete for inputs, and each becomes a weighted mean of what it won."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from capsjax.functional import check_array, check_floating, type_of_sums
from capsjax.routing._checks import check_broadcast, check_probabilities, check_scalar
from capsjax.routing.routed import Routed
from capsjax.routing.votes import einsum, placed_like


def slot_attention(
    inputs: Float[Array | np.ndarray, "*#batch N D"],
    queries: Float[Array | np.ndarray, "*#batch J K"],
    key_kernel: Float[Array | np.ndarray, "D K"],
    value_kernel: Float[Array | np.ndarray, "D V"],
    *,
    mask: Float[Array | np.ndarray, "..."] | Bool[Array | np.ndarray, "..."] | None = None,
    scale: float | Float[Array, ""] | None = None,
    epsilon: float = 1e-8,
) -> Routed:
    """Does one iteration of slot attention (Locatello et al. 2020).

      a_nj = m_n softmax_j(scale · <x_n W_k, q_j>)
      p_j  = Σ_n a_nj x_n W_v / (Σ_n a_nj + epsilon)

    It is `inverted_attention_routing` with one transform for all parents, keys that differ from
    values, and a weighted mean. Keys and values are never formed: <x W_k, q> = <x, W_k q>, and the
    mean is taken before W_v. The backward pass computes the couplings again, so nothing of their
    size is held between the passes; it has derivatives in reverse mode (`jax.grad`, and `jax.grad`
    of that), not in forward mode (`jax.jvp`). The layer `capsjax.layers.SlotAttention` adds the GRU
    and the MLP.

    Args:
      inputs: x_n [..., N, D], usually layer-normalised.
      queries: q_j [..., J, K], one for each slot.
      key_kernel: W_k [D, K].
      value_kernel: W_v [D, V].
      mask: m_n in [0, 1], or booleans, broadcast to [..., N]: 0 for padding; None for 1. Checked
        where the values are concrete.
      scale: of the agreement, one number; None is 1/√K.
      epsilon: keeps a slot that wins nothing from dividing by 0: its pose is 0.

    Returns:
      Poses [..., J, V] and the coupling a [..., N, J].
    """
    arrays = {
        "inputs": (inputs, "ND"),
        "queries": (queries, "JK"),
        "key_kernel": (key_kernel, "DK"),
        "value_kernel": (value_kernel, "DV"),
    }
    lengths: dict[str, int] = {}
    for name, (array, axes) in arrays.items():
        check_floating(name, array)
        if array.ndim < 2 or (array.ndim > 2 and name.endswith("kernel")):
            raise ValueError(f"{name} must have the axes {', '.join(axes)}, got {array.shape}.")
        for axis, length in zip(axes, array.shape[-2:], strict=True):
            if not length or length != lengths.setdefault(axis, length):
                raise ValueError(
                    f"the axis {axis} of {name} must have length {lengths.get(axis, '1 or more')}, "
                    f"got {array.shape}; N are inputs, J slots, and D, K and V the sizes of "
                    "inputs, queries and values."
                )
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    check_scalar("scale", scale, "multiply the queries by it where slots differ in it.")
    dtype = type_of_sums(inputs, queries, key_kernel)
    if mask is not None:
        check_array("mask", mask)
        mask = jnp.asarray(mask, dtype) if mask.dtype == bool else mask
        check_broadcast("mask", mask, inputs.shape[:-1], "[..., N]")
        check_probabilities("mask", mask)
        mask = jnp.broadcast_to(mask, inputs.shape[:-1])[..., None, :]
    scaled = jnp.asarray(queries, dtype) * jnp.asarray(scale, dtype)
    pulled = einsum("...jk,dk->...jd", scaled, jnp.asarray(key_kernel))  # W_k q, sized as inputs
    # All get the batch axes of each other, and are on the same devices.
    pulled = placed_like(pulled, inputs[..., :1, :1])
    x = placed_like(inputs, pulled[..., :1, :1])
    if mask is not None:
        mask = placed_like(mask, pulled[..., :1, :1])
    means, coupling = _attend(x, pulled, mask, epsilon)
    poses = einsum("...jd,dv->...jv", means, jnp.asarray(value_kernel))
    return Routed(poses.astype(jnp.result_type(inputs)), jnp.swapaxes(coupling, -1, -2))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(
    x: Float[Array, "*batch N D"],
    pulled: Float[Array, "*batch J D"],
    mask: Float[Array, "*batch 1 N"] | None,
    epsilon: float,
) -> tuple[Float[Array, "*batch J D"], Float[Array, "*batch J N"]]:
    """Weighs inputs by slots whose queries are `pulled` back to inputs; returns coupling too."""
    return _forward(x, pulled, mask, epsilon)[0]


def _forward(x: Array, pulled: Array, mask: Array | None, epsilon: float) -> tuple[Any, Any]:
    # Slots before inputs: few slots in the last axis would be padded to a register's width.
    coupling = _masked(jax.nn.softmax(_agreement(pulled, x), axis=-2), mask)
    total = jnp.sum(coupling, axis=-1, keepdims=True) + epsilon
    means = einsum("...jn,...nd->...jd", coupling, x) / total
    return (means, coupling), (x, pulled, mask, means, total)


def _backward(_: float, kept: Any, gradients: Any) -> tuple[Array, Array, Array | None]:
    x, pulled, mask, means, total = kept
    d_means, d_coupling = gradients
    d_sums = d_means / total
    d_coupling = d_coupling - jnp.sum(d_sums * means, axis=-1, keepdims=True)
    softmax, d_coupling, d_mask = jax.lax.platform_dependent(
        pulled, d_sums, x, d_coupling, cuda=_shares_twice, default=_shares
    )
    d_logits = _masked(softmax * (d_coupling - d_mask), mask)
    # The gradient of x as one product, where a sum of two would be written and read twice more.
    weights = jnp.concatenate([d_logits, _masked(softmax, mask)], axis=-2)  # [..., 2J, N]
    d_x = einsum("...jn,...jd->...nd", weights, jnp.concatenate([pulled, d_sums], axis=-2))
    # Only the first half is needed, but to slice the operands would store them once more.
    d_pulled = einsum("...jn,...nd->...jd", weights, x)[..., : pulled.shape[-2], :]
    return d_x.astype(x.dtype), d_pulled, None if mask is None else d_mask.astype(mask.dtype)


_attend.defvjp(_forward, _backward)


def _shares(pulled: Array, d_sums: Array, x: Array, d_coupling: Array) -> tuple[Array, ...]:
    """Returns the unmasked couplings, their gradient (both [J, N]) and the mask's gradient."""
    softmax = jax.nn.softmax(_agreement(pulled, x), axis=-2)
    d_coupling = d_coupling + _agreement(d_sums, x)
    return softmax, d_coupling, jnp.sum(softmax * d_coupling, axis=-2, keepdims=True)


def _shares_twice(pulled: Array, d_sums: Array, x: Array, d_coupling: Array) -> tuple[Array, ...]:
    # XLA for GPUs would store the softmax between its two uses, a quarter of all temporaries. For
    # TPUs and CPUs one product takes longer than two.
    def shares(both: Array) -> tuple[Array, Array]:
        logits, d_weights = jnp.split(both, 2, axis=-2)
        return jax.nn.softmax(logits, axis=-2), d_coupling + d_weights

    both = _agreement(jnp.concatenate([pulled, d_sums], axis=-2), x)
    softmax, d_weights = shares(both)
    d_mask = jnp.sum(softmax * d_weights, axis=-2, keepdims=True)
    both, d_mask = jax.lax.optimization_barrier((both, d_mask))
    return *shares(both), d_mask


def _agreement(rows: Array, x: Array) -> Array:
    return einsum("...jd,...nd->...jn", rows, x)


def _masked(coupling: Array, mask: Array | None) -> Array:
    return coupling if mask is None else coupling * mask.astype(coupling.dtype)
