"""Checks of arguments at trace time. Messages say which argument, what it got and what to do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from capsjax.functional import check_floating


def check_scalar(name: str, value: Any, why: str) -> None:
    """Raises unless `value` is a number or an array of shape (); `why` ends the message."""
    if not isinstance(value, float | int | np.number | jax.Array | np.ndarray):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if jnp.ndim(value):
        shape = jnp.shape(value)
        raise ValueError(
            f"{name} must be one number or an array of shape (), got shape {shape}; {why}"
        )


def check_broadcast(name: str, x: Any, shape: tuple[Any, ...], axes: str) -> None:
    """Raises unless `x` is floating and broadcasts to `shape`, whose trailing `axes` are named."""
    check_floating(name, x)
    try:
        fits = jnp.broadcast_shapes(x.shape, shape) == shape  # lengths may be symbolic
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast to {axes} = {shape}, got shape {x.shape}; "
            f"check it against the votes' trailing axes (children, parents, pose size)."
        )


def check_probabilities(name: str, x: jax.Array | np.ndarray) -> None:
    """Raises a ValueError unless all values lie in [0, 1]; traced ones are not checked."""
    if isinstance(x, jax.core.Tracer):
        return
    values = np.asarray(x, np.float32)
    if not np.all((values >= 0) & (values <= 1 + 2 * jnp.finfo(x.dtype).eps)):  # lengths round
        raise ValueError(
            f"{name} must lie in [0, 1], got values from {values.min()} to {values.max()}; "
            f"pass logits through jax.nn.sigmoid first."
        )


def check_counts(least: int = 1, /, **values: Any) -> None:
    """Raises unless every value is an integer of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(
                f"{name} must be a Python int, got {type(value).__name__}; "
                f"it sets shapes or the length of a loop, so mark it static under jit."
            )
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")
