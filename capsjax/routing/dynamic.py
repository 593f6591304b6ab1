"""Dynamic routing by agreement, optionally with the soft update, and uniform routing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from capsjax.functional import identity, squash, type_of_sums
from capsjax.routing._checks import check_broadcast, check_counts, check_scalar
from capsjax.routing.kernels import softmax
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

# Sums Σ_i c_ij v_ij [..., J, D] and coupling c [..., I, J].
_Coupled = tuple[Array, Array]
# Between iterations: the sum q of all poses so far; the latest sums and coupling, if a soft update
# mixes them with the next; the poses.
_State = tuple[Array, _Coupled | None, Array]


def dynamic_routing(
    votes: VotesLike,
    *,
    num_iterations: int = 3,
    logits: Broadcast | None = None,
    bias: Broadcast | None = None,
    update_rate: float | int | Float[Array, ""] = 1.0,
    activation: Callable[[Poses], Poses] = squash,
    stop_gradient: bool = False,
    leaky: bool = False,
) -> Routed:
    """Routes by agreement (Sabour et al. 2017, procedure 1; soft update: Lin et al. 2018, eq. 3).

    From the prior logits b_ij, `num_iterations` times:

      ĉ_i· = softmax_j(b_i·)
      c_ij ← η ĉ_ij + (1 − η) c_ij          c starts at 1/J, or 1/(J+1) if leaky
      p_j  = squash(Σ_i c_ij v_ij + bias_j)
      b_ij ← b_ij + <v_ij, p_j>

    Args:
      votes: an operator or an array [..., I, J, D].
      num_iterations: r, at least 1.
      logits: prior logits b_ij, broadcast to [..., I, J]; None for zeros.
      bias: broadcast to [..., J, D]; None for none.
      update_rate: η in (0, 1], checked where its value is concrete; 1 is the plain procedure.
      activation: applied to the last axis in place of squash.
      stop_gradient: treat the couplings as constants in differentiation, as many ports do. By
        default gradients flow through all iterations, as in the authors' released code.
      leaky: let one extra logit of 0 join each softmax and drop its share, so that a child can
        belong to no parent (an option of the released code).

    Returns:
      Poses [..., J, D] and coupling [..., I, J] of the last iteration.
    """
    votes = as_votes(votes)
    shape = shape_of(votes)
    *batch, children, parents, size = shape.shape
    dtype = type_of_sums(shape.dtype)
    check_counts(num_iterations=num_iterations)
    check_scalar("update_rate", update_rate, "all couplings are mixed at the same rate.")
    if not isinstance(update_rate, jax.core.Tracer) and not 0 < update_rate <= 1:
        raise ValueError(
            f"update_rate (η) must be in (0, 1], got {update_rate}; 1 is plain dynamic routing."
        )
    if bias is not None:
        check_broadcast("bias", bias, (*batch, parents, size), "[..., J, D]")
        # The votes set the type: a wider argument must not change it between iterations.
        bias = jnp.asarray(bias, dtype)
    if logits is not None:
        check_broadcast("logits", logits, (*batch, children, parents), "[..., I, J]")
        logits = jnp.broadcast_to(logits.astype(dtype), (*batch, children, parents))
    activate = activation if bias is None else lambda sums: activation(sums + bias)
    hold = lax.stop_gradient if stop_gradient else identity
    in_one_pass = logits is None and not leaky and not stop_gradient
    soft = isinstance(update_rate, jax.core.Tracer) or update_rate != 1
    uniform = 1 / (parents + leaky)

    def mix(new: Array, old: Array | float) -> Array:
        rate = jnp.asarray(update_rate, new.dtype)  # a wider one must not change the type
        return rate * new + (1 - rate) * old

    def couple(agreed: Array, before: Array | float | None) -> _Coupled:
        """Returns sums and coupling of the logits b; a soft update mixes it with that before."""
        if leaky:  # with one more logit of 0
            padded = jnp.pad(agreed, [(0, 0)] * (agreed.ndim - 1) + [(0, 1)])
            coupling = softmax(padded)[..., :-1]
        else:
            coupling = softmax(agreed)
        coupling = hold(coupling if before is None else mix(coupling, before))
        return votes.combine(coupling), coupling

    def iterate(state: _State) -> tuple[_State, Array]:
        total, before, _ = state  # b_ij = logits_ij + <v_ij, total_j>
        if in_one_pass:
            coupled = attend(votes, total)
            sums, coupling = jax.tree.map(mix, coupled, before) if before else coupled
        else:
            agreed = votes.agreement(total) + (0 if logits is None else logits)
            sums, coupling = couple(agreed, before and before[1])
        poses = activate(sums)
        return (total + poses, (sums, coupling) if soft else None, poses), coupling

    if logits is None:
        # Uniform coupling needs no votes: their sum is one matrix product.
        sums = votes.total() * uniform
        coupling = jnp.full((children, parents), uniform, sums.dtype)
    else:
        logits = for_every_example(logits, votes.total())  # only its type is used
        sums, coupling = couple(logits, uniform if soft else None)
    coupling = for_every_example(coupling, sums)
    poses = activate(sums)
    state: _State = (poses, (sums, coupling) if soft else None, poses)
    if num_iterations > 1:
        # The last iteration is outside the loop: only its coupling is returned, and with
        # stop_gradient it alone is differentiated.
        start = jax.tree.map(hold, state)
        state = lax.fori_loop(0, num_iterations - 2, lambda _, x: iterate(x)[0], start)
        state, coupling = iterate(jax.tree.map(hold, state))
    return Routed(state[2].astype(shape.dtype), coupling)


def uniform_routing(
    votes: VotesLike,
    *,
    bias: Broadcast | None = None,
    activation: Callable[[Poses], Poses] = squash,
) -> Routed:
    """p_j = squash(1/J Σ_i v_ij + bias_j)   (Gu et al. 2021, section 3: CapsNet-NoR).

    Dynamic routing with one iteration and no prior logits. It costs one matrix product.

    Args:
      votes: an operator or an array [..., I, J, D].
      bias: added to the sum, broadcast to [..., J, D].
      activation: applied to the last axis in place of squash.
    """
    return dynamic_routing(votes, num_iterations=1, bias=bias, activation=activation)
