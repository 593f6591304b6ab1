import jax.numpy as jnp
import numpy as np
from flax import nnx

from capsjax.evaluation.cost import inference_cost
from capsjax.models import Output

SIDE = 64


class Products(nnx.Module):
    """Two matrix products with an intermediate result of known size, and an unused statistic."""

    def __init__(self, times):
        self.kernel = nnx.Param(jnp.ones((SIDE, SIDE)))
        self.seen = nnx.BatchStat(jnp.zeros(3))
        self.times = times

    def __call__(self, images, *, capture=False):
        x = images.reshape(len(images), -1)
        for _ in range(self.times):
            x = jnp.tanh(x @ self.kernel[...])
        return Output(x[:, :2])


def test_known_sizes():
    images = np.zeros((32, 8, 8, 1), np.float32)
    cost = inference_cost(Products(2), images, repeats=3)
    assert cost.parameters == SIDE * SIDE
    # The kernel and the images; a statistic that nothing uses is not passed.
    assert cost.argument_bytes == 4 * (SIDE * SIDE + 32 * SIDE)
    # At least one intermediate result, and not many.
    assert 4 * 32 * SIDE <= cost.temporary_bytes <= 4 * 4 * 32 * SIDE
    assert len(cost.seconds) == 3
    assert min(cost.seconds) <= cost.median_seconds <= max(cost.seconds)
    assert min(cost.seconds) > 0
