"""Uniform routing: every parent takes an equal share of every child ("no routing")."""

from collections.abc import Callable

import jax.numpy as jnp

from capsjax.functional import squash
from capsjax.routing._checks import check_broadcast
from capsjax.routing.routed import Routed
from capsjax.routing.votes import Broadcast, Poses, VotesLike, as_votes, shape_of


def uniform_routing(
    votes: VotesLike,
    *,
    bias: Broadcast | None = None,
    activation: Callable[[Poses], Poses] = squash,
) -> Routed:
    """p_j = squash(1/J Σ_i v_ij + bias_j)   (Gu et al. 2021, section 3: CapsNet-NoR).

    Equal to dynamic routing with one iteration and no prior logits. It costs one matrix product and
    forms no votes.

    Args:
      votes: an operator or an array [..., I, J, D].
      bias: added to the sum, broadcast to [..., J, D].
      activation: applied to the last axis in place of squash.
    """
    votes = as_votes(votes)
    shape = shape_of(votes)
    *batch, children, parents, size = shape.shape
    mean = votes.total() / parents
    if bias is not None:
        check_broadcast("bias", bias, (*batch, parents, size), "[..., J, D]")
        mean = mean + jnp.asarray(bias, mean.dtype)
    coupling = jnp.full((*batch, children, parents), 1 / parents, mean.dtype)
    return Routed(activation(mean).astype(shape.dtype), coupling)
