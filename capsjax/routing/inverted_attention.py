"""Inverted dot-product attention routing: parents attend to children's votes."""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from capsjax.functional import type_of_sums
from capsjax.routing._checks import check_broadcast, check_scalar
from capsjax.routing.routed import Routed
from capsjax.routing.votes import (
    Broadcast,
    Poses,
    VotesLike,
    as_votes,
    attend,
    for_every_example,
    shape_of,
)


def inverted_attention_routing(
    votes: VotesLike,
    poses: Broadcast | None = None,
    *,
    scale: float | Float[Array, ""] | None = None,
    normalize: Callable[[Poses], Poses],
) -> Routed:
    """Does one iteration of inverted dot-product attention (Tsai et al. 2020, eq. 2 to 4).

      a_ij = scale · <p_j, v_ij>
      r_i· = softmax_j(a_i·)
      p_j  = LayerNorm(Σ_i r_ij v_ij)

    Both released implementations scale by 1/√D, which the paper does not mention. To repeat the
    iteration layer by layer, in all layers at once or until nothing changes, see `sequential`,
    `concurrent` and `fixed_point` (capsjax.routing).

    Args:
      votes: an operator or an array [..., I, J, D].
      poses: p_j of the previous iteration [..., J, D]. None is the first iteration, in which poses
        are zero and so r = 1/J exactly: one matrix product.
      scale: of the agreement, a number or a scalar array, such as a learned one. None is 1/√D; 1 is
        equation 2 as printed.
      normalize: the LayerNorm over the last axis, with whatever parameters it has, such as a
        `flax.nnx.LayerNorm` or `jax.nn.standardize`. The identity is the ablation without it.

    Returns:
      Poses [..., J, D] and the coupling r [..., I, J].
    """
    votes = as_votes(votes)
    shape = shape_of(votes)
    *batch, children, parents, size = shape.shape
    scale = 1 / math.sqrt(size) if scale is None else scale
    check_scalar("scale", scale, "multiply poses by it where parents differ in it.")
    if poses is None:
        sums = votes.total() / parents
        coupling = for_every_example(jnp.full((children, parents), 1 / parents, sums.dtype), sums)
    else:
        check_broadcast("poses", poses, (*batch, parents, size), "[..., J, D]")
        poses = jnp.broadcast_to(poses, (*batch, parents, size)).astype(type_of_sums(shape.dtype))
        sums, coupling = attend(votes, jnp.asarray(scale, poses.dtype) * poses)
    return Routed(normalize(sums).astype(shape.dtype), coupling)
