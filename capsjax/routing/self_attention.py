"""Self-attention routing: each child asks how well its vote agrees with all others, in one pass."""

import math
from collections.abc import Callable

import jax.numpy as jnp

from capsjax.functional import exponential_squash
from capsjax.routing._checks import check_broadcast
from capsjax.routing.routed import Routed
from capsjax.routing.votes import Broadcast, Poses, VotesLike, as_votes, attend, shape_of


def self_attention_routing(
    votes: VotesLike,
    prior: Broadcast | None = None,
    *,
    activation: Callable[[Poses], Poses] = exponential_squash,
) -> Routed:
    """Routes by self-attention (Mazzia et al. 2021, Efficient-CapsNet).

      a_ij = Σ_k <v_ij, v_kj> / sqrt(D)
      c_ij = softmax_j(a_i·) + b_ij
      p_j  = squash(Σ_i c_ij v_ij)

    The squash is (1 − e^−|s|) s / |s|. The sum over the children k is <v_ij, Σ_k v_kj>, so a child
    attends to the total of all votes: nothing of size I×I is formed, nor, with an operator, the
    votes.

    Args:
      votes: an operator or an array [..., I, J, D].
      prior: b_ij, broadcast to [..., I, J] and added after the softmax; None for none.
      activation: applied to the last axis in place of the squash.

    Returns:
      Poses [..., J, D] and coupling c [..., I, J], which with a prior need not sum to 1.
    """
    votes = as_votes(votes)
    shape = shape_of(votes)
    sums, coupling = attend(votes, votes.total() / math.sqrt(shape.shape[-1]))
    if prior is not None:
        check_broadcast("prior", prior, shape.shape[:-1], "[..., I, J]")
        prior = jnp.broadcast_to(jnp.asarray(prior, coupling.dtype), coupling.shape)
        sums, coupling = sums + votes.combine(prior), coupling + prior
    return Routed(activation(sums).astype(shape.dtype), coupling)
