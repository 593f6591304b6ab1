"""When to iterate what: one layer, a stack of layers, or until nothing changes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree

from capsjax.functional import at_least_float32
from capsjax.routing._checks import check_counts
from capsjax.routing.em import em_routing
from capsjax.routing.inverted_attention import inverted_attention_routing
from capsjax.routing.routed import Routed
from capsjax.routing.votes import VotesLike

# layer(below, previous): one routing iteration of a layer, from the state of the layer below and
# its own previous state, which is None in the first iteration. A state is any pytree of arrays:
# poses, or poses and activations.
Layer = Callable[[PyTree, PyTree | None], PyTree]


def sequential(layers: Sequence[Layer], inputs: PyTree, *, num_iterations: int) -> list[PyTree]:
    """Does all iterations of a layer, then of the next layer (ablation B of Tsai et al. 2020).

    Args:
      layers: functions layer(below, previous) -> state, from the bottom up.
      inputs: the state below the first layer.
      num_iterations: iterations of each layer, at least 1; the first is given None for `previous`.

    Returns:
      The last state of each layer.
    """
    _check_stack(layers, num_iterations)
    states = []
    for layer in layers:
        (inputs,) = concurrent([layer], inputs, num_iterations=num_iterations)
        states.append(inputs)
    return states


def concurrent(layers: Sequence[Layer], inputs: PyTree, *, num_iterations: int) -> list[PyTree]:
    """Updates all layers at once, from their previous values (Tsai et al. 2020, procedure 2).

    The first iteration goes bottom-up. In every further one each layer is updated from the previous
    states of the layer below and of itself. Arguments and result are those of `sequential`.
    """
    _check_stack(layers, num_iterations)
    states, below = [], inputs
    for layer in layers:
        below = layer(below, None)
        states.append(below)

    def update(states: list[PyTree]) -> list[PyTree]:
        below = [inputs, *states[:-1]]
        return [layer(*each) for layer, *each in zip(layers, below, states, strict=True)]

    # Usually only the top layer's state is used. In the last iterations it depends on fewer and
    # fewer layers: outside the loop XLA removes the others.
    last = min(num_iterations, len(layers)) - 1
    repeated = num_iterations - 1 - last
    states = lax.fori_loop(0, repeated, lambda _, states: update(states), states)
    for _ in range(last):
        states = update(states)
    return states


class FixedPoint(NamedTuple):
    """Routing run to convergence.

    Attributes:
      routed: the routing at the last state.
      converged: whether the state changed by less than the tolerance.
      num_iterations: how many iterations were run.
    """

    routed: Routed
    converged: Bool[Array, ""]
    num_iterations: Int[Array, ""]


def fixed_point(
    procedure: Callable[..., Routed],
    votes: VotesLike,
    *args: Array | np.ndarray,
    tolerance: float = 1e-6,
    max_iterations: int = 300,
    **options: Any,
) -> FixedPoint:
    """Iterates routing to its fixed point, which Tsai et al. 2020 name as future work.

      p* = iteration(p*)   for inverted_attention_routing
      R* = iteration(R*)   for em_routing at a fixed inverse temperature

    Gradients come from the implicit function theorem, so memory does not grow with the number of
    iterations. They are those of the limit, so right only where `converged`. A batch in leading
    axes iterates until its slowest example converges; under `jax.vmap` each example stops by
    itself. Call it inside jit: outside, every call compiles it again.

    Args:
      procedure: `inverted_attention_routing` or `em_routing`.
      votes: an operator or an array [..., I, J, D].
      *args: further positional arguments of the procedure.
      tolerance: converged when every number of the state changes by less than
        tolerance · (1 + |number|); bfloat16 votes need about 0.01. The linear system of the
        gradient is iterated in the same way, relative to the largest number of its right side,
        and if that does not converge, the iterate with the least residual is taken.
      max_iterations: cap on iterations, at least 1. Reaching it raises nothing: see `converged`.
      **options: keyword arguments of the procedure, except the starting state and
        `num_iterations`. EM needs a number for `inverse_temperature`.
    """
    check_counts(max_iterations=max_iterations)
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}; try 1e-6.")
    iterate, finish, start = _as_iteration(procedure, votes, args, options)

    def converge(_: Any, start: Array) -> tuple[Array, tuple[Array, Array]]:
        limit = _until_still(iterate, start, tolerance, max_iterations)
        # Returned as floats: what comes with a root must have tangents.
        return limit.state, (limit.change, limit.num_iterations.astype(limit.change.dtype))

    def solve(matrix: Callable[[Array], Array], vector: Array) -> Array:
        """Solves x = x + matrix(x) − vector, as the routing converges; else finds the best x."""
        size = _largest(vector)
        vector = vector / jnp.where(size > 0, size, 1).astype(vector.dtype)
        limit = _until_still(lambda x: x + matrix(x) - vector, -vector, tolerance, max_iterations)
        return limit.best * size.astype(vector.dtype)

    state, (change, num_iterations) = lax.custom_root(
        lambda state: iterate(state) - state,
        start,
        converge,
        lambda matrix, vector: lax.custom_linear_solve(matrix, vector, solve, solve),
        has_aux=True,
    )
    return FixedPoint(finish(state), change < tolerance, num_iterations.astype(int))


class _Iterated(NamedTuple):
    """A state after some iterations."""

    state: Array  # the last one
    change: Array  # the largest relative change of a number in the last step
    # the state that its next step changed least, in absolute terms. If iteration diverges on the
    # linear system of the gradient, this one is still of moderate size
    best: Array
    least: Array  # by how much that step changed it
    num_iterations: Array  # how many were run


def _until_still(
    update: Callable[[Array], Array], start: Array, tolerance: float, most: int
) -> _Iterated:
    """Repeats `update` until no number changes by tolerance · (1 + |number|), or `most` times."""

    def step(now: _Iterated) -> _Iterated:
        state = update(now.state)
        residual = state - now.state
        least = _largest(residual)
        better = least < now.least
        return _Iterated(
            state,
            _largest(residual / (1 + jnp.abs(state))),
            jnp.where(better, now.state, now.best),
            jnp.where(better, least, now.least),
            now.num_iterations + 1,
        )

    def moves(now: _Iterated) -> Array:
        return (now.change >= tolerance) & (now.num_iterations < most)

    # Not constants: under `jax.shard_map` each device has its own, which is a part of their types.
    none = _largest(start) * 0
    endless = none + jnp.finfo(none.dtype).max
    return lax.while_loop(moves, step, _Iterated(start, endless, start, endless, none.astype(int)))


def _largest(x: Array) -> Array:
    """Returns the largest |number|, 0 for an empty array."""
    return jnp.max(jnp.abs(at_least_float32(x)), initial=0.0)


def _as_iteration(
    procedure: Callable[..., Routed], votes: Any, args: tuple, options: dict[str, Any]
) -> tuple[Callable[[Array], Array], Callable[[Array], Routed], Array]:
    """Returns a map from state to state, a map from state to result, and the first state."""
    if procedure is inverted_attention_routing:

        def attend(poses: Array | None) -> Routed:
            return inverted_attention_routing(votes, poses, *args, **options)

        return lambda poses: attend(poses).poses, attend, attend(None).poses
    if procedure is em_routing:
        if callable(options.get("inverse_temperature", callable)):
            raise ValueError(
                "fixed_point of em_routing needs a number for inverse_temperature: with a schedule "
                "the iteration changes as it goes and has no fixed point. Pass for example "
                "inverse_temperature=0.01, the limit of the published schedule."
            )

        def maximize(coupling: Array | None, num_iterations: int) -> Routed:
            return em_routing(
                votes, *args, num_iterations=num_iterations, coupling=coupling, **options
            )

        # Two M-steps with an E-step between them: the coupling is that of the E-step, and XLA
        # removes the second M-step.
        return (
            lambda coupling: maximize(coupling, 2).coupling,
            lambda coupling: maximize(coupling, 1),
            maximize(None, 2).coupling,
        )
    raise ValueError(
        f"procedure must be inverted_attention_routing or em_routing, got {procedure!r}: give "
        "their arguments to fixed_point, not to a partial. Others are a single pass, or have no "
        "fixed point: dynamic_routing adds to its logits without bound."
    )


def _check_stack(layers: Sequence[Layer], num_iterations: int) -> None:
    check_counts(num_iterations=num_iterations)
    if not layers:
        raise ValueError("layers must hold at least one layer, got none.")
