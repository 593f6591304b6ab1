"""EM routing: parents as Gaussian clusters of their children's votes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from capsjax.functional import type_of_sums
from capsjax.routing._checks import check_broadcast, check_counts, check_probabilities, check_scalar
from capsjax.routing.kernels import LEAST_TOTAL
from capsjax.routing.routed import Routed
from capsjax.routing.votes import (
    Broadcast,
    Coupling,
    DenseVotes,
    Poses,
    VotesLike,
    as_votes,
    for_every_example,
    shape_of,
)

# Limits R_ij relative to its parent's largest R_ij a_i: without it, unbounded as a_i goes to 0.
_MOST = 1e15

Schedule = Callable[[Int[Array, ""] | int], Float[Array, ""]]


def published_inverse_temperature(iteration: Int[Array, ""] | int, limit: float = 0.01) -> Array:
    """Returns λ (1 − 0.95^(t+1)) for iteration t = 0, 1, … (Hinton et al. 2018: λ = 0.01)."""
    return limit * (1 - 0.95 ** (jnp.asarray(iteration, float) + 1))


def softmax_over_parents(logits: Coupling) -> Coupling:
    """Returns the log-softmax over the last axis: one position's parents share a child."""
    return jax.nn.log_softmax(logits, axis=-1)


def em_routing(
    votes: VotesLike,
    activations: Broadcast,
    beta_use: Broadcast,
    beta_activate: Broadcast,
    *,
    num_iterations: int = 3,
    coupling: Broadcast | None = None,
    inverse_temperature: Schedule | float = published_inverse_temperature,
    variance_floor: float = 1e-4,
    normalize: Callable[[Coupling], Coupling] = softmax_over_parents,
) -> Routed:
    """Routes by EM (Hinton et al. 2018, procedure 1; the EM baseline of Tsai et al. 2020).

    `num_iterations` M-steps with E-steps between them. From R_ij = 1/J and child activations a_i:

      M:  μ_j = Σ_i R_ij a_i v_ij / Σ_i R_ij a_i
          σ²_jd = Σ_i R_ij a_i (v_ijd − μ_jd)² / Σ_i R_ij a_i + variance_floor
          cost_j = Σ_d (β_u,j + log σ_jd) · Σ_i R_ij a_i
          a_j = sigmoid(λ (β_a,j − cost_j))
      E:  log p_ij = −Σ_d [(v_ijd − μ_jd)² / 2σ²_jd + log σ_jd + ½ log 2π]
          R_i· = softmax_j(log a_j + log p_ij)

    A parent whose R_ij all go to 0 still has a mean; one without active children gets μ = 0.
    Deviations of votes are squared, and squared again in gradients. In float32, results are right
    for deviations up to 10¹⁸, gradients up to about 10⁹ (they are not finite from about 10¹³).

    Args:
      votes: an operator (see Votes for what EM asks of it) or an array [..., I, J, D].
      activations: a_i in [0, 1], broadcast to [..., I]; checked where the values are concrete.
      beta_use, beta_activate: β_u and β_a, each broadcast to [..., J].
      num_iterations: M-steps, at least 1.
      coupling: the R to start from, broadcast to [..., I, J]; None for what `normalize` makes of
        equal logits, by default 1/J.
      inverse_temperature: λ as a function of the iteration t = 0, 1, …, or one number.
      variance_floor: added to σ², positive: equal votes have no variance to divide by.
      normalize: maps log a_j + log p_ij [..., I, J] to log R. The default, over the parents of one
        position, is the common simplification; `softmax_over_windows` is Hinton's.

    Returns:
      Poses μ [..., J, D], the R [..., I, J] of the last M-step (without a_i), activations [..., J].
    """
    votes = as_votes(votes)
    shape = shape_of(votes)
    *batch, children, parents = full = shape.shape[:-1]
    check_counts(num_iterations=num_iterations)
    check_broadcast("activations", activations, (*batch, children), "[..., I]")
    check_probabilities("activations", activations)
    check_broadcast("beta_use", beta_use, (*batch, parents), "[..., J]")
    check_broadcast("beta_activate", beta_activate, (*batch, parents), "[..., J]")
    if not callable(inverse_temperature):
        check_scalar("inverse_temperature", inverse_temperature, "pass λ(t) to change it.")
    check_scalar("variance_floor", variance_floor, "it is added to all variances.")
    if not isinstance(variance_floor, jax.core.Tracer) and not variance_floor > 0:
        raise ValueError(f"variance_floor must be positive, got {variance_floor}; try 1e-4.")
    if not (hasattr(votes, "scatter") and hasattr(votes, "distance")):
        votes = DenseVotes(votes.dense())
    dtype = type_of_sums(shape.dtype)  # which a wider argument must not change
    costs = [jnp.asarray(x, dtype) for x in (beta_use, beta_activate, variance_floor)]
    activations = jnp.broadcast_to(jnp.asarray(activations, dtype), full[:-1])[..., None]

    def maximize(relative: Array, largest: Array, iteration: Array | int) -> _Parents:
        """Does an M-step for R = relative · largest; `largest` is [..., 1, J]."""
        use, activate, floor = costs
        sums, squares, total = _moments(votes, jnp.broadcast_to(activations * relative, full))
        divisor = jnp.maximum(total, LEAST_TOTAL)[..., None]
        means, variances = sums / divisor, squares / divisor + floor
        mass = total * largest[..., 0, :]  # Σ_i R_ij a_i
        cost = jnp.sum(use[..., None] + 0.5 * jnp.log(variances), axis=-1) * mass
        schedule = inverse_temperature
        value = jnp.asarray(schedule(iteration) if callable(schedule) else schedule, dtype)
        return _Parents(means, variances, value * (activate - cost))

    def iterate(state: tuple[Array, _Parents], iteration: Array) -> tuple[Any, None]:
        log_coupling = normalize(_e_step(state[1], votes))
        log_largest = _largest(log_coupling + jnp.log(activations))
        log_largest = jnp.where(jnp.isneginf(log_largest), 0, log_largest)  # no child is active
        above = log_coupling - log_largest
        # A minimum whose gradient is that of `above`: `jnp.minimum` would store a mask for its own.
        above = above - lax.stop_gradient(jax.nn.relu(above - math.log(_MOST)))
        relative = jnp.exp(above)
        return (log_coupling, maximize(relative, jnp.exp(log_largest), iteration)), None

    if coupling is None and normalize is not softmax_over_parents:
        coupling = jnp.exp(normalize(jnp.broadcast_to(jnp.zeros_like(activations), full)))
    relative, largest = _first_coupling(coupling, activations, full, dtype)
    fitted = maximize(relative, largest, 0)
    last = 1 / parents if coupling is None else coupling
    last = for_every_example(jnp.broadcast_to(jnp.asarray(last, dtype), full), fitted.means)
    if num_iterations > 1:
        # The first state's log R is never read: the E-step takes the parents alone.
        (log_coupling, fitted), _ = lax.scan(iterate, (last, fitted), jnp.arange(1, num_iterations))
        last = jnp.exp(log_coupling)
    active = jax.nn.sigmoid(fitted.activation_logits)
    return Routed(fitted.means.astype(shape.dtype), last, active.astype(shape.dtype))


class _Parents(NamedTuple):
    """The Gaussians of the parents."""

    means: Poses  # μ
    variances: Poses  # σ²
    activation_logits: Float[Array, "*batch J"]  # λ (β_a − cost)


def _first_coupling(
    coupling: Broadcast | None, activations: Array, full: tuple[int, ...], dtype: Any
) -> tuple[Array, Array]:
    """Returns the first R divided by each parent's largest R_ij a_i, and these largest values.

    (With uniform coupling: divided by 1/J.) So a parent whose R_ij are all tiny still has a mean.
    """
    if coupling is None:
        # One number for all: the first M-step then forms no [..., I, J] besides its weights.
        relative = jnp.ones((1,) * len(full), dtype)
        return relative, relative / full[-1]
    check_broadcast("coupling", coupling, full, "[..., I, J]")
    # The smallest positive number replaces 0, which could not be divided by. Logarithms would not
    # do: their second derivatives are not finite for R below 10⁻¹⁹.
    coupling = jnp.atleast_2d(coupling).astype(dtype)
    least = jnp.maximum(coupling, jnp.finfo(dtype).tiny)
    positive = coupling + lax.stop_gradient(least - coupling)  # zeros keep their gradient
    largest = _largest(positive * activations)
    largest = jnp.where(largest == 0, 1, largest)  # no child is active
    return jnp.minimum(positive / largest, _MOST), largest


def _largest(coupling: Coupling) -> Float[Array, "*batch 1 J"]:
    return lax.stop_gradient(jnp.max(coupling, axis=-2, keepdims=True))


def _moments(votes: Any, weights: Coupling) -> tuple[Poses, Poses, Array]:
    """Returns Σ_i w_ij v_ij, Σ_i w_ij (v_ij − μ_j)² about the mean μ_j, and Σ_i w_ij [..., J].

    Votes with a method `moments` of their own (see LinearVotes) are asked for all at once.
    """
    if hasattr(votes, "moments"):
        return votes.moments(weights)
    sums, total = votes.combine(weights), jnp.sum(weights, axis=-2)
    means = sums / jnp.maximum(total, LEAST_TOTAL)[..., None]
    return sums, votes.scatter(weights, means), total


def _e_step(parents: _Parents, votes: Any) -> Coupling:
    """Returns log a_j + log p_ij: the E-step of procedure 1 before its softmax."""
    log_normal = -0.5 * votes.distance(parents.means, 1 / parents.variances)
    constant = 0.5 * jnp.sum(jnp.log(parents.variances) + math.log(2 * math.pi), axis=-1)
    log_parent = jax.nn.log_sigmoid(parents.activation_logits) - constant
    return log_normal + log_parent[..., None, :]
