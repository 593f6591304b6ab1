"""The papers' optimizers and learning rates, from optax."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax.numpy as jnp
import ml_collections
import optax

from capsjax._names import lookup
from capsjax._options import Options, checked, decay, fraction, not_negative, positive


@dataclass(frozen=True)
class Optimizer(Options):
    """What every optimizer has.

    Attributes:
      learning_rate: the rate that the schedule multiplies.
      weight_decay: adds that multiple of each parameter to its gradient, before the optimizer.
      clip_norm: the largest global norm of the gradient, after weight decay; 0: no limit.
    """

    SECTION: ClassVar[str] = "optimizer"

    learning_rate: float = positive(1e-3)
    weight_decay: float = not_negative(0.0)
    clip_norm: float = not_negative(0.0)

    def make(self, rate: optax.Schedule) -> optax.GradientTransformation:
        raise NotImplementedError  # without weight decay and clipping


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (sabour2017, gu2021, the dynamic and EM baselines of tsai2020).

    Attributes:
      b1: decay of the mean of gradients.
      b2: decay of the mean of their squares.
    """

    b1: float = decay(0.9)
    b2: float = decay(0.999)

    def make(self, rate: optax.Schedule) -> optax.GradientTransformation:
        return optax.adam(rate, b1=self.b1, b2=self.b2)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop as Keras has it: eps outside the root (choi2019).

    Attributes:
      rho: decay of the mean of squared gradients.
      eps: a number added to its root.
    """

    rho: float = decay(0.9)
    eps: float = positive(1e-7)

    def make(self, rate: optax.Schedule) -> optax.GradientTransformation:
        return optax.rmsprop(rate, decay=self.rho, eps=self.eps, eps_in_sqrt=False)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent with momentum (tsai2020).

    Attributes:
      momentum: how much of the last update is added to the next.
    """

    momentum: float = decay(0.9)

    def make(self, rate: optax.Schedule) -> optax.GradientTransformation:
        return optax.sgd(rate, momentum=self.momentum)


@dataclass(frozen=True)
class Constant(Options):
    """A constant rate.

    Attributes:
      warmup_steps: steps of a linear rise from 0 to the schedule.
    """

    SECTION: ClassVar[str] = "schedule"

    warmup_steps: int = not_negative(0)

    def make(self, rate: float, steps_per_epoch: int) -> optax.Schedule:
        return optax.constant_schedule(rate)


@dataclass(frozen=True)
class Exponential(Constant):
    """rate · decay_rate^(step / decay_steps) (sabour2017's released code).

    Attributes:
      decay_rate: the factor of the rate in `decay_steps` steps.
      decay_steps: steps in which the rate is multiplied by `decay_rate` once.
      minimum: the smallest rate.
    """

    decay_rate: float = fraction(0.96)
    decay_steps: int = positive(2000)
    minimum: float = not_negative(1e-6)

    def make(self, rate: float, steps_per_epoch: int) -> optax.Schedule:
        # Optax takes it for the largest rate where rates do not fall.
        minimum = min(self.minimum, rate) if self.decay_rate < 1 else None
        return optax.exponential_decay(rate, self.decay_steps, self.decay_rate, end_value=minimum)


@dataclass(frozen=True)
class InverseTime(Constant):
    """rate / (1 + decay · step), Keras's `decay` (choi2019).

    Attributes:
      decay: the factor of the step number in the formula.
    """

    decay: float = not_negative(1e-4)

    def make(self, rate: float, steps_per_epoch: int) -> optax.Schedule:
        return lambda step: rate / (1 + self.decay * jnp.asarray(step, jnp.float32))


@dataclass(frozen=True)
class Steps(Constant):
    """rate, times `factor` after each of `epochs` (tsai2020).

    Attributes:
      epochs: the epochs after which the rate falls.
      factor: the factor of the rate after each of `epochs`.
    """

    epochs: tuple[int, ...] = checked(
        (150, 250),
        lambda epochs: all(a < b for a, b in pairwise((0, *epochs))),
        "must be positive and ascending",
        whole=True,
    )
    factor: float = positive(0.1)

    def make(self, rate: float, steps_per_epoch: int) -> optax.Schedule:
        boundaries = {round(epoch * steps_per_epoch): self.factor for epoch in self.epochs}
        return optax.piecewise_constant_schedule(rate, boundaries)


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}
SCHEDULES: dict[str, type[Constant]] = {
    "constant": Constant,
    "exponential": Exponential,
    "inverse_time": InverseTime,
    "steps": Steps,
}


def make_optimizer(
    optimizer: Mapping[str, Any] | ml_collections.ConfigDict,
    schedule: Mapping[str, Any] | ml_collections.ConfigDict,
    *,
    steps_per_epoch: int,
) -> optax.GradientTransformation:
    """Returns the optimizer of these two config sections."""
    options, rates_options = dict(optimizer), dict(schedule)
    own = lookup("optimizer.name", options.pop("name", ""), OPTIMIZERS).of(options)
    rates = lookup("schedule.name", rates_options.pop("name", ""), SCHEDULES).of(rates_options)
    after_warmup = rates.make(own.learning_rate, steps_per_epoch)
    rise = optax.linear_schedule(0.0, 1.0, rates.warmup_steps)
    rate = (lambda step: rise(step) * after_warmup(step)) if rates.warmup_steps else after_warmup
    return optax.chain(
        *([optax.add_decayed_weights(own.weight_decay)] if own.weight_decay else []),
        *([optax.clip_by_global_norm(own.clip_norm)] if own.clip_norm else []),
        own.make(rate),
    )
