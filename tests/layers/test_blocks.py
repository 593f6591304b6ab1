import chex
import jax
import jax.numpy as jnp
import pytest

from capsjax.layers import in_blocks


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8])
def test_blocks_change_neither_values_nor_gradients(block_size):
    weights = jax.random.normal(jax.random.key(0), (3, 4))
    batch = {"x": jax.random.normal(jax.random.key(1), (5, 3)), "y": jnp.arange(5.0)}

    def loss(weights, batch, block_size):
        def f(batch):
            return jnp.tanh(batch["x"] @ weights), batch["y"] ** 2

        out = in_blocks(f, batch, block_size)
        return jnp.sum(out[0]) * jnp.sum(out[1]), out

    def run(size):
        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        return jax.jit(gradient, static_argnums=2)(weights, batch, size)

    chex.assert_trees_all_close(run(block_size), run(None), rtol=1e-4, atol=1e-5)
