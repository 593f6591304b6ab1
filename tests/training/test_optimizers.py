import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.training.config import defaults
from capsjax.training.optimizers import make_optimizer


def learning_rates(schedule, steps, **options):
    """What plain gradient descent moves by when the gradient is 1: the rate at each step."""
    section = defaults("optimizer", "sgd", momentum=0.0, **options)
    optimizer = make_optimizer(section, schedule, steps_per_epoch=10)
    update, state, rates = jax.jit(optimizer.update), optimizer.init(jnp.zeros(())), []
    for _ in range(max(steps) + 1):
        move, state = update(jnp.ones(()), state, jnp.zeros(()))
        rates.append(-float(move))
    return [rates[step] for step in steps]


def test_exponential():
    section = defaults("schedule", "exponential", decay_steps=2, minimum=0.5)
    rates = learning_rates(section, [0, 1, 2, 30], learning_rate=0.75)
    np.testing.assert_allclose(rates, [0.75, 0.75 * 0.96**0.5, 0.75 * 0.96, 0.5], rtol=1e-6)
    np.testing.assert_allclose(learning_rates(section, [0, 30], learning_rate=0.1), 0.1)
    constant = defaults("schedule", "exponential", decay_rate=1.0)
    np.testing.assert_allclose(learning_rates(constant, [0, 30], learning_rate=0.75), 0.75)


def test_inverse_time_is_kerass_decay():
    section = defaults("schedule", "inverse_time", decay=0.5)
    np.testing.assert_allclose(
        learning_rates(section, [0, 1, 2], learning_rate=1.0), [1, 1 / 1.5, 1 / 2]
    )


def test_steps_are_at_the_end_of_epochs():
    section = defaults("schedule", "steps", epochs=(1, 3), factor=0.1)
    rates = learning_rates(section, [0, 9, 10, 29, 30], learning_rate=1.0)
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01], rtol=1e-6)


def test_warmup_rises_from_zero():
    section = defaults("schedule", "constant", warmup_steps=4)
    rates = learning_rates(section, [0, 1, 4, 9], learning_rate=1.0)
    np.testing.assert_allclose(rates, [0, 0.25, 1, 1], atol=1e-7)


def test_weight_decay_is_part_of_the_gradient_and_clipped_with_it():
    section = defaults(
        "optimizer", "sgd", learning_rate=1.0, momentum=0.0, weight_decay=0.5, clip_norm=1.0
    )
    optimizer = make_optimizer(section, defaults("schedule", "constant"), steps_per_epoch=1)
    params = jnp.array([6.0, 8.0])  # decay alone makes a gradient of (3, 4), clipped to length 1
    update, _ = optimizer.update(jnp.zeros(2), optimizer.init(params), params)
    np.testing.assert_allclose(update, [-0.6, -0.8], rtol=1e-6)


def test_rmsprop_is_kerass():
    optimizer = make_optimizer(
        defaults("optimizer", "rmsprop"), defaults("schedule", "constant"), steps_per_epoch=1
    )
    state, mean, position = optimizer.init(jnp.zeros(())), 0.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        update, state = optimizer.update(jnp.asarray(gradient), state, jnp.zeros(()))
        position += float(update)
        mean = 0.9 * mean + 0.1 * gradient**2
        assert float(update) == pytest.approx(-1e-3 * gradient / (mean**0.5 + 1e-7), rel=1e-5)
