"""EM routing with learned costs, and its class capsules."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.layers.bound import bound
from capsjax.layers.transforms import as_matrices, check_poses, kernel_shape, unit_votes
from capsjax.routing import (
    LinearVotes,
    Routed,
    Votes,
    em_routing,
    published_inverse_temperature,
    softmax_over_parents,
)


class EMRouting(nnx.Module):
    """`em_routing` with its learned costs: β_u and β_a of every parent, initially 0.

    For the argument `routing` of the capsule layers. Called with the activations of the children
    (for `ConvCapsules`, those that its `child_activations` returns).

    Args:
      inverse_temperature: λ in λ_t = λ (1 − 0.95^(t+1)); 0.01 is published. The cost it multiplies
        grows with the number of children: with few of them and so small a λ, activations stay
        near one half and hardly learn.
      normalize: how a child is divided: by default among the parents of one position; with
        `softmax_over_windows` (with its grid), as in Hinton et al., among all parents it reaches.
    """

    def __init__(
        self,
        num_parents: int,
        *,
        num_iterations: int = 3,
        inverse_temperature: float = 0.01,
        normalize: Callable[[jax.Array], jax.Array] = softmax_over_parents,
    ):
        self.beta_use = nnx.Param(jnp.zeros(num_parents, jnp.float32))
        self.beta_activate = nnx.Param(jnp.zeros(num_parents, jnp.float32))
        self.procedure = bound(
            em_routing,
            num_iterations=num_iterations,
            inverse_temperature=bound(published_inverse_temperature, limit=inverse_temperature),
            normalize=normalize,
        )

    def __call__(self, votes: Votes | Array, activations: Float[Array, "*batch I"]) -> Routed:
        """Returns poses [..., J, D], couplings [..., I, J] and activations [..., J]."""
        return self.procedure(votes, activations, self.beta_use[...], self.beta_activate[...])


class EMClassCapsules(nnx.Module):
    """Class capsules whose weights are shared over positions (Hinton et al. 2018).

    `coordinate_addition` writes the position into the votes. Poses are matrices; `options` are
    `num_iterations` and `inverse_temperature`, as in `EMRouting`.
    """

    def __init__(
        self, in_channels: int, num_classes: int, pose_size: int, *, rngs: nnx.Rngs, **options: Any
    ):
        shape = kernel_shape(in_channels, pose_size, num_classes, pose_size, "matrix")
        self.kernel = nnx.Param(unit_votes(rngs.params(), shape, jnp.float32))
        self.routing = EMRouting(num_classes, **options)
        self.in_channels, self.pose_size = in_channels, pose_size

    def __call__(
        self, poses: Float[Array, "*batch H W C D"], activations: Float[Array, "*batch H W C"]
    ) -> Routed:
        """Returns poses [..., J, D], couplings [..., H·W·C, J] and activations [..., J]."""
        check_poses(poses, in_channels=self.in_channels, pose_size=self.pose_size)
        kernel = self.kernel[...]
        votes = coordinate_addition(LinearVotes(as_matrices(poses, kernel), kernel).dense())
        return self.routing(
            jax.lax.collapse(votes, votes.ndim - 5, votes.ndim - 2),
            jax.lax.collapse(activations, activations.ndim - 3),
        )


def coordinate_addition(
    votes: Float[Array, "*batch H W C J D"],
) -> Float[Array, "*batch H W C J D"]:
    """Adds each child's row and column to its votes (Hinton et al. 2018, coordinate addition).

    Votes are √D×√D matrices. The centre of the position, as a fraction of height and width, is
    added to the first two numbers of the last column, where a homogeneous transform translates.
    """
    side = math.isqrt(votes.shape[-1])
    if votes.ndim < 5 or side < 2 or side**2 != votes.shape[-1]:
        raise ValueError(f"D of [H, W, C, J, D] must be a square of at least 4: {votes.shape}")
    height, width = votes.shape[-5:-3]
    rows = (jnp.arange(height, dtype=votes.dtype) + 0.5) / height
    columns = (jnp.arange(width, dtype=votes.dtype) + 0.5) / width
    votes = votes.at[..., side - 1].add(rows[:, None, None, None])
    return votes.at[..., 2 * side - 1].add(columns[:, None, None])
