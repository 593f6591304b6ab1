"""The papers' optimizers and learning rates, from optax.

A config has the sections `optimizer` and `schedule`, each with a `name` and exactly the options of
that name: `optimizer_options("sgd", momentum=0.8)` is such a section.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import ml_collections
import optax
from jaxtyping import Array, Float, Int

from capsjax._names import check_kind, check_options, lookup

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


def adam(rate: Schedule, *, b1: float = 0.9, b2: float = 0.999) -> optax.GradientTransformation:
    """Adam (sabour2017, gu2021, the dynamic and EM baselines of tsai2020)."""
    _check_decay("b1", b1)
    _check_decay("b2", b2)
    return optax.adam(rate, b1=b1, b2=b2)


def rmsprop(rate: Schedule, *, rho: float = 0.9, eps: float = 1e-7) -> optax.GradientTransformation:
    """RMSprop as Keras has it: eps outside the root (choi2019)."""
    _check_decay("rho", rho)
    if not eps > 0:
        raise ValueError(f"optimizer.eps must be positive, got {eps}")
    return optax.rmsprop(rate, decay=rho, eps=eps, eps_in_sqrt=False)


def sgd(rate: Schedule, *, momentum: float = 0.9) -> optax.GradientTransformation:
    """Gradient descent with momentum (tsai2020)."""
    _check_decay("momentum", momentum)
    return optax.sgd(rate, momentum=momentum)


def constant(rate: float, steps_per_epoch: float) -> Schedule:
    """A constant rate."""
    return optax.constant_schedule(rate)


def exponential(
    rate: float,
    steps_per_epoch: float,
    *,
    decay_rate: float = 0.96,
    decay_steps: int = 2000,
    minimum: float = 1e-6,
) -> Schedule:
    """rate · decay_rate^(step / decay_steps), not below `minimum` (sabour2017's released code)."""
    if decay_steps < 1:
        raise ValueError(f"schedule.decay_steps must be at least 1, got {decay_steps}")
    if not 0 < decay_rate <= 1:
        raise ValueError(f"schedule.decay_rate must be in (0, 1], got {decay_rate}")
    if minimum < 0:
        raise ValueError(f"schedule.minimum must be ≥ 0, got {minimum}")
    return optax.exponential_decay(rate, decay_steps, decay_rate, end_value=minimum)


def inverse_time(rate: float, steps_per_epoch: float, *, decay: float = 1e-4) -> Schedule:
    """rate / (1 + decay · step), Keras's `decay` (choi2019)."""
    if decay < 0:
        raise ValueError(f"schedule.decay must be ≥ 0, got {decay}")
    return lambda step: rate / (1 + decay * jnp.asarray(step, jnp.float32))


def steps(
    rate: float,
    steps_per_epoch: float,
    *,
    epochs: tuple[int, ...] = (150, 250),
    factor: float = 0.1,
) -> Schedule:
    """rate, times `factor` after each of `epochs` (tsai2020)."""
    if not factor > 0:
        raise ValueError(f"schedule.factor must be positive, got {factor}")
    if not all(0 < a < b for a, b in zip(epochs, (*epochs[1:], math.inf), strict=True)):
        raise ValueError(f"schedule.epochs must be positive and ascend, got {epochs}")
    boundaries = {round(epoch * steps_per_epoch): factor for epoch in epochs}
    return optax.piecewise_constant_schedule(rate, boundaries)


OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    f.__name__: f for f in (adam, rmsprop, sgd)
}
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    f.__name__: f for f in (constant, exponential, inverse_time, steps)
}
# What every optimizer and every schedule has. 0 turns weight decay, clipping and warm-up off.
COMMON = {"learning_rate": 1e-3, "weight_decay": 0.0, "clip_norm": 0.0, "accumulate_steps": 1}


def optimizer_options(name: str, **overrides: Any) -> dict[str, Any]:
    """The config section of an optimizer: its options, and `COMMON`'s.

    `weight_decay` adds that multiple of each parameter to its gradient, before the optimizer;
    `clip_norm` then limits the gradient's global norm; `accumulate_steps` averages the
    gradients of that many batches before each update.
    """
    return _section("optimizer", OPTIMIZERS, name, COMMON, overrides)


def schedule_options(name: str, **overrides: Any) -> dict[str, Any]:
    """The config section of a schedule: its options, and `warmup_steps`, of a linear rise to it."""
    return _section("schedule", SCHEDULES, name, {"warmup_steps": 0}, overrides)


def make_optimizer(
    optimizer: Mapping[str, Any] | ml_collections.ConfigDict,
    schedule: Mapping[str, Any] | ml_collections.ConfigDict,
    *,
    steps_per_epoch: int,
) -> optax.GradientTransformation:
    """The optimizer of these two config sections.

    Raises:
      ValueError: an unknown name, an option that the name does not have, a value out of range.
    """
    optimizer = optimizer_options(**optimizer)
    schedule = schedule_options(**schedule)
    learning_rate, weight_decay, clip_norm, accumulate = (optimizer.pop(key) for key in COMMON)
    warmup = schedule.pop("warmup_steps")
    if not learning_rate > 0:
        raise ValueError(f"optimizer.learning_rate must be positive, got {learning_rate}")
    for key, value in (
        ("optimizer.weight_decay", weight_decay),
        ("optimizer.clip_norm", clip_norm),
        ("schedule.warmup_steps", warmup),
    ):
        if value < 0:
            raise ValueError(f"{key} must be ≥ 0, got {value}")
    if accumulate < 1:
        raise ValueError(f"optimizer.accumulate_steps must be at least 1, got {accumulate}")

    # A fraction of an update, where its batches are of two epochs.
    rate = SCHEDULES[schedule.pop("name")](learning_rate, steps_per_epoch / accumulate, **schedule)
    if warmup:
        rate = _after_warmup(rate, warmup)
    parts = [
        *([optax.add_decayed_weights(weight_decay)] if weight_decay else []),
        *([optax.clip_by_global_norm(clip_norm)] if clip_norm else []),
        OPTIMIZERS[optimizer.pop("name")](rate, **optimizer),
    ]
    chained = optax.chain(*parts)
    if accumulate > 1:
        return optax.MultiSteps(chained, accumulate).gradient_transformation()
    return chained


def _after_warmup(rate: Schedule, warmup: int) -> Schedule:
    rise = optax.linear_schedule(0.0, 1.0, warmup)
    return lambda step: rise(step) * rate(step)


def _check_decay(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"optimizer.{name} must be in [0, 1), got {value}")


def _section(
    kind: str,
    factories: Mapping[str, Callable[..., Any]],
    name: str,
    common: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> dict[str, Any]:
    factory = lookup(f"{kind}.name", name, factories)
    parameters = inspect.signature(factory).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    defaults = dict(common) | own
    check_options(f"{kind} {name}", overrides, defaults)
    for key, value in overrides.items():
        check_kind(f"{kind}.{key}", value, defaults[key])
    return {"name": name} | defaults | dict(overrides)
