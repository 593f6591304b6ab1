import jax
import jax.numpy as jnp
import numpy as np

from capsjax.layers import dropout


def test_an_example_depends_on_its_own_key_only():
    keys = jax.random.split(jax.random.key(0), 5)
    x = jnp.ones((5, 40, 3))
    all_at_once = dropout(x, keys, keep=0.5)
    np.testing.assert_array_equal(all_at_once[3:4], dropout(x[3:4], keys[3:4], keep=0.5))
    assert not np.array_equal(all_at_once[0], all_at_once[1])


def test_mean_is_kept():
    keys = jax.random.split(jax.random.key(0), 100)
    dropped = dropout(jnp.ones((100, 200)), keys, keep=0.25)
    assert set(np.unique(dropped)) == {0, 4}
    np.testing.assert_allclose(dropped.mean(), 1, atol=0.05)


def test_no_keys_no_dropout():
    x = jnp.ones((2, 3))
    assert dropout(x, None, keep=0.5) is x
    assert dropout(x, jax.random.split(jax.random.key(0), 2), keep=1.0) is x
