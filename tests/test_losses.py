import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.losses import margin_loss, reconstruction_loss


def test_margin_loss_by_hand():
    # present: (0.9 − 0.7)² = 0.04; absent: 0.5·(0.3 − 0.1)² = 0.02, and 0.05 is below 0.1
    loss = margin_loss(jnp.array([0.7, 0.3, 0.05]), jnp.array([1.0, 0.0, 0.0]))
    assert loss == pytest.approx(0.06, rel=1e-6)


def test_margin_loss_is_zero_when_all_margins_are_kept():
    assert margin_loss(jnp.array([0.95, 0.1]), jnp.array([1.0, 0.0])) == 0


def test_margin_loss_takes_several_present_classes():
    loss = margin_loss(jnp.array([0.5, 0.5, 0.0]), jnp.array([1.0, 1.0, 0.0]))
    assert loss == pytest.approx(2 * 0.16, rel=1e-6)


def test_losses_of_narrow_types_are_summed_in_float32():
    image = jnp.full((28, 28, 1), 1 / 3, jnp.bfloat16)
    loss = reconstruction_loss(jnp.zeros_like(image), image)
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, 784 * np.float32(image[0, 0, 0]) ** 2, rtol=1e-4)
