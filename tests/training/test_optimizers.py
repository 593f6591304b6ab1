import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from capsjax.training.optimizers import make_optimizer, optimizer_options, schedule_options


def learning_rates(schedule, steps, **options):
    """What plain gradient descent moves by when the gradient is 1: the rate at each step."""
    section = optimizer_options("sgd", momentum=0.0, **options)
    optimizer = make_optimizer(section, schedule, steps_per_epoch=10)
    state, rates = optimizer.init(jnp.zeros(())), []
    for _ in range(max(steps) + 1):
        update, state = optimizer.update(jnp.ones(()), state, jnp.zeros(()))
        rates.append(-float(update))
    return [rates[step] for step in steps]


def test_exponential():
    section = schedule_options("exponential", decay_steps=2, minimum=0.5)
    rates = learning_rates(section, [0, 1, 2, 30], learning_rate=0.75)
    np.testing.assert_allclose(rates, [0.75, 0.75 * 0.96**0.5, 0.75 * 0.96, 0.5], rtol=1e-6)


def test_inverse_time_is_kerass_decay():
    section = schedule_options("inverse_time", decay=0.5)
    np.testing.assert_allclose(
        learning_rates(section, [0, 1, 2], learning_rate=1.0), [1, 1 / 1.5, 1 / 2]
    )


def test_steps_are_at_the_end_of_epochs():
    section = schedule_options("steps", epochs=(1, 3), factor=0.1)
    rates = learning_rates(section, [0, 9, 10, 29, 30], learning_rate=1.0)
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01], rtol=1e-6)


def test_warmup_rises_from_zero():
    section = schedule_options("constant", warmup_steps=4)
    rates = learning_rates(section, [0, 1, 4, 9], learning_rate=1.0)
    np.testing.assert_allclose(rates, [0, 0.25, 1, 1], atol=1e-7)


@pytest.mark.parametrize("accumulate", [1, 4, 8, 16])
@pytest.mark.parametrize("warmup", [0, 20])
def test_steps_are_at_the_end_of_epochs_whatever_the_updates(accumulate, warmup):
    section = schedule_options("steps", epochs=(30,), factor=0.1, warmup_steps=warmup)
    options = optimizer_options("sgd", momentum=0.0, learning_rate=1.0, accumulate_steps=accumulate)
    optimizer = make_optimizer(options, section, steps_per_epoch=14)
    gradient = params = jnp.zeros(())
    update, state = jax.jit(optimizer.update), optimizer.init(params)
    lowered = 0
    for step in range(1, 30 * 14 + 2 * accumulate):
        change, state = update(gradient + 1, state, params)
        if step > warmup * accumulate + accumulate and -0.2 < float(change) < 0 and not lowered:
            lowered = step
    assert 30 * 14 <= lowered <= 30 * 14 + accumulate


def test_weight_decay_is_part_of_the_gradient_and_clipped_with_it():
    section = optimizer_options(
        "sgd", learning_rate=1.0, momentum=0.0, weight_decay=0.5, clip_norm=1.0
    )
    optimizer = make_optimizer(section, schedule_options("constant"), steps_per_epoch=1)
    params = jnp.array([6.0, 8.0])  # decay alone makes a gradient of (3, 4), clipped to length 1
    update, _ = optimizer.update(jnp.zeros(2), optimizer.init(params), params)
    np.testing.assert_allclose(update, [-0.6, -0.8], rtol=1e-6)


def test_accumulated_batches_are_one_large_batch():
    section = optimizer_options("adam", accumulate_steps=2)
    accumulated = make_optimizer(section, schedule_options("exponential"), steps_per_epoch=4)
    whole = make_optimizer(
        optimizer_options("adam"), schedule_options("exponential"), steps_per_epoch=2
    )
    rng = np.random.default_rng(0)
    params = [jnp.ones(3), jnp.ones(3)]
    states = [accumulated.init(params[0]), whole.init(params[1])]
    for _ in range(3):
        halves = rng.normal(size=(2, 3)).astype(np.float32)
        for half in halves:
            update, states[0] = accumulated.update(jnp.asarray(half), states[0], params[0])
            params[0] = optax.apply_updates(params[0], update)
        update, states[1] = whole.update(jnp.asarray(halves.mean(0)), states[1], params[1])
        params[1] = optax.apply_updates(params[1], update)
    np.testing.assert_allclose(params[0], params[1], rtol=1e-6)


def test_rmsprop_is_kerass():
    optimizer = make_optimizer(
        optimizer_options("rmsprop"), schedule_options("constant"), steps_per_epoch=1
    )
    state, mean, position = optimizer.init(jnp.zeros(())), 0.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        update, state = optimizer.update(jnp.asarray(gradient), state, jnp.zeros(()))
        position += float(update)
        mean = 0.9 * mean + 0.1 * gradient**2
        assert float(update) == pytest.approx(-1e-3 * gradient / (mean**0.5 + 1e-7), rel=1e-5)


@pytest.mark.parametrize(
    ("optimizer", "schedule", "message"),
    [
        ({"name": "adm"}, {}, "unknown optimizer.name 'adm': did you mean 'adam'"),
        ({"name": "adam", "momentum": 0.5}, {}, "adam has no option 'momentum'"),
        ({}, {"name": "step"}, "did you mean 'steps'"),
        ({}, {"name": "exponential", "epochs": (3,)}, "exponential has no option 'epochs'"),
        ({}, {"decay_steps": 0}, "decay_steps must be at least 1"),
        ({}, {"decay_rate": 1.5}, r"decay_rate must be in \(0, 1\]"),
        ({}, {"warmup_steps": -1}, "warmup_steps must be ≥ 0"),
        ({"learning_rate": 0.0}, {}, "learning_rate must be positive"),
        ({"clip_norm": -1.0}, {}, "clip_norm must be ≥ 0"),
        ({"accumulate_steps": 0}, {}, "accumulate_steps must be at least 1"),
    ],
)
def test_bad_values(optimizer, schedule, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(
            {"name": "adam"} | optimizer, {"name": "exponential"} | schedule, steps_per_epoch=1
        )


def test_updates_are_jit_safe():
    optimizer = make_optimizer(
        optimizer_options("adam"), schedule_options("steps"), steps_per_epoch=1
    )
    state = optimizer.init(jnp.zeros(2))
    update, _ = jax.jit(optimizer.update)(jnp.ones(2), state, jnp.zeros(2))
    assert np.isfinite(update).all()
