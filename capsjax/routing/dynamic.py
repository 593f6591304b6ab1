"""Dynamic routing by agreement, with the soft update."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from capsjax.functional import squash, type_of_sums
from capsjax.routing._carry import divided_like
from capsjax.routing._checks import check_broadcast, check_count, check_scalar
from capsjax.routing.routed import Routed
from capsjax.routing.votes import Votes, as_votes, attend, shape_of

_State = tuple[Array, Array, Array]  # logits, coupling, poses
_Activation = Callable[[Array], Array]
_Rate = float | int | Float[Array, ""]


def dynamic_routing(
    votes: Votes | Float[Array | np.ndarray, "*batch I J D"],
    *,
    num_iterations: int = 3,
    logits: Float[Array | np.ndarray, "..."] | None = None,
    bias: Float[Array | np.ndarray, "..."] | None = None,
    update_rate: float | int | Float[Array, ""] = 1.0,
    activation: Callable[[Float[Array, "*batch J D"]], Float[Array, "*batch J D"]] = squash,
    stop_gradient: bool = False,
    leaky: bool = False,
) -> Routed:
    """Dynamic routing (Sabour et al. 2017, procedure 1; soft update: Lin et al. 2018, eq. 3).

    From the prior logits b_ij, `num_iterations` times:

      ĉ_i· = softmax_j(b_i·)
      c_ij ← η ĉ_ij + (1 − η) c_ij          c starts at 1/J
      p_j  = squash(Σ_i c_ij v_ij + bias_j)
      b_ij ← b_ij + <v_ij, p_j>

    Args:
      votes: an operator or an array [..., I, J, D].
      num_iterations: r, at least 1.
      logits: prior logits b_ij, broadcast to [..., I, J]; None for zeros.
      bias: broadcast to [..., J, D]; None for none.
      update_rate: η in (0, 1]; 1 is the plain procedure. (Checked where its value is concrete.)
      activation: applied to the last axis in place of squash.
      stop_gradient: treat the couplings as constants in differentiation, as many ports do. By
        default gradients flow through all iterations, as in the authors' released code.
      leaky: let one extra logit of 0 join each softmax and drop its share, so that a child can
        belong to no parent (an option of the released code).

    Returns:
      Poses [..., J, D] and coupling [..., I, J] of the last iteration.

    Raises:
      TypeError: an argument has the wrong type or an array is not floating.
      ValueError: `num_iterations` < 1, η outside (0, 1], or a shape that does not fit.
    """
    votes = as_votes(votes)
    shape = shape_of(votes)
    *batch, children, parents, size = shape.shape
    dtype = type_of_sums(shape.dtype)
    check_count("num_iterations", num_iterations)
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
    activate = partial(_activate, activation, bias)
    uniform = 1 / (parents + leaky)
    if logits is None and not leaky and not stop_gradient:
        poses, coupling = _route(votes, uniform, num_iterations, update_rate, activate)
    else:
        start = None
        if logits is not None:
            start = jnp.broadcast_to(logits.astype(dtype), (*batch, children, parents))
        poses, coupling = _route_with_logits(
            votes, uniform, num_iterations, update_rate, activate, start, leaky, stop_gradient
        )
    return Routed(poses.astype(shape.dtype), coupling)


def _route(
    votes: Votes, uniform: float, num_iterations: int, rate: _Rate, activate: _Activation
) -> tuple[Array, Any]:
    """Poses and coupling where logits begin at zero.

    Then b_ij = <v_ij, q_j> with q the sum of all poses so far, an iteration is one call of
    `attend`, and no logits are kept. The soft update mixes couplings and, since s is linear in
    them, sums alike.
    """
    plain = _is_plain(rate)
    sums = votes.total() * uniform
    poses = activate(sums)
    coupling = None
    if num_iterations == 1 or not plain:
        children = shape_of(votes).shape[-3]
        coupling = divided_like(sums, jnp.full((children, sums.shape[-2]), uniform, sums.dtype))

    def iterate(state: tuple[Any, ...]) -> tuple[Any, ...]:
        total, sums, coupling, poses = state
        new_sums, new_coupling = attend(votes, total)
        if not plain:
            new_sums = _mix(rate, new_sums, sums)
            new_coupling = _mix(rate, new_coupling, coupling)
        poses = activate(new_sums)
        return total + poses, new_sums, new_coupling, poses

    def carry(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        total, sums, coupling, poses = iterate(state)
        return (total, sums, None if plain else coupling, poses), None

    state = (poses, sums, coupling, poses)
    if num_iterations > 1:
        # The last iteration stands outside the loop: only its couplings are ever asked for.
        state, _ = lax.scan(carry, state, length=num_iterations - 2)
        state = iterate(state)
    _, _, coupling, poses = state
    return poses, coupling


def _route_with_logits(
    votes: Votes,
    uniform: float,
    num_iterations: int,
    rate: _Rate,
    activate: _Activation,
    logits: Array | None,
    leaky: bool,
    stop_gradient: bool,
) -> tuple[Array, Array]:
    """Poses and coupling for prior logits, the leaky softmax and held couplings."""
    plain = _is_plain(rate)
    hold = lax.stop_gradient if stop_gradient else lambda x: x

    def update(logits: Array, coupling: Array | float) -> Array:
        routed = _softmax(logits, leaky=leaky)
        return hold(routed if plain else _mix(rate, routed, coupling))

    def iterate(state: _State, _: None) -> tuple[_State, None]:
        logits, coupling, poses = state
        logits = hold(logits + votes.agreement(poses))
        coupling = update(logits, coupling)
        return (logits, coupling, activate(votes.combine(coupling))), None

    if logits is None:
        # Uniform coupling needs no votes: their sum is one matrix product.
        sums = votes.total() * uniform
        children = shape_of(votes).shape[-3]
        coupling = jnp.full((children, sums.shape[-2]), uniform, sums.dtype)
        logits = jnp.zeros_like(coupling)
    else:
        coupling = update(logits, uniform)
        sums = votes.combine(coupling)
    logits, coupling = divided_like(sums, logits), divided_like(sums, coupling)
    state = (hold(logits), coupling, activate(sums))
    if num_iterations > 1:
        # The last iteration stands outside the loop: under stop_gradient only it is differentiated.
        state, _ = lax.scan(iterate, jax.tree.map(hold, state), length=num_iterations - 2)
        state, _ = iterate(jax.tree.map(hold, state), None)
    _, coupling, poses = state
    return poses, coupling


def _activate(activation: Callable[[Array], Array], bias: Array | None, total: Array) -> Array:
    return activation(total if bias is None else total + bias)


def _is_plain(rate: _Rate) -> bool:
    return not isinstance(rate, jax.core.Tracer) and bool(rate == 1)


def _softmax(logits: Float[Array, "*batch J"], *, leaky: bool) -> Float[Array, "*batch J"]:
    """The softmax over the parents, with one more logit of 0 if `leaky`."""
    if not leaky:
        return jax.nn.softmax(logits, axis=-1)
    padded = jnp.pad(logits, [(0, 0)] * (logits.ndim - 1) + [(0, 1)])
    return jax.nn.softmax(padded, axis=-1)[..., :-1]


def _mix(rate: _Rate, new: Array, old: Array | float) -> Array:
    rate = jnp.asarray(rate, new.dtype)  # a wider one must not change the type of what is mixed
    return rate * new + (1 - rate) * old
