"""The papers' optimizers, from optax."""

import optax


def create(
    *, learning_rate: float, decay_rate: float, decay_steps: int, min_learning_rate: float
) -> optax.GradientTransformation:
    """Adam with a learning rate that falls continuously, as in Sabour et al.'s released code."""
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, got {learning_rate}")
    if decay_steps < 1:
        raise ValueError(f"decay_steps must be at least 1, got {decay_steps}")
    if not 0 < decay_rate <= 1:
        raise ValueError(f"decay_rate must be in (0, 1], got {decay_rate}")
    schedule = optax.exponential_decay(
        learning_rate, decay_steps, decay_rate, end_value=min_learning_rate
    )
    return optax.adam(schedule)
