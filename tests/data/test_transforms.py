import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.data.transforms import shift


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.float32])
def test_shift_moves_and_fills_with_zeros(dtype):
    image = jnp.ones((5, 4, 2), dtype)
    image = image.at[2, 1].set(7)
    seen = set()
    for seed in range(60):
        moved = np.asarray(shift(jax.random.key(seed), image, 1))
        assert moved.dtype == dtype
        ((y, x),) = np.argwhere(moved[..., 0] == 7)
        dy, dx = y - 2, x - 1
        expected = np.zeros_like(moved)
        expected[max(dy, 0) : 5 + min(dy, 0), max(dx, 0) : 4 + min(dx, 0)] = 1
        expected[y, x] = 7
        np.testing.assert_array_equal(moved, expected)
        seen.add((int(dy), int(dx)))
    assert seen == {(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)}


def test_shifts_are_uniform():
    image = jnp.zeros((9, 9, 1)).at[4, 4].set(1)
    count = 25 * 400
    keys = jax.random.split(jax.random.key(0), count)
    where = jax.vmap(lambda key: jnp.argmax(shift(key, image, 2)))(keys)
    observed = np.bincount(np.asarray(where), minlength=81).reshape(9, 9)
    inside = observed[2:7, 2:7]
    assert inside.sum() == count
    # Chi-squared with 24 degrees of freedom: 51 is exceeded once in a thousand keys.
    assert np.sum((inside - 400) ** 2 / 400) < 51


def test_shift_same_alone_vmapped_and_jitted():
    images = jax.random.uniform(jax.random.key(0), (6, 8, 7, 1))
    keys = jax.random.split(jax.random.key(1), 6)
    alone = jnp.stack([shift(k, i, 2) for k, i in zip(keys, images, strict=True)])
    together = jax.jit(jax.vmap(lambda k, i: shift(k, i, 2)))(keys, images)
    np.testing.assert_array_equal(alone, together)


def test_no_shift_is_identity():
    image = jnp.arange(12.0).reshape(3, 4, 1)
    np.testing.assert_array_equal(shift(jax.random.key(0), image, 0), image)


def test_shift_rejects_bad_arguments():
    with pytest.raises(ValueError, match="max_shift: expected 0 or more pixels, got -1"):
        shift(jax.random.key(0), jnp.zeros((3, 3, 1)), -1)
    with pytest.raises(ValueError, match=r"image: expected one image.*\(2, 3, 3, 1\)"):
        shift(jax.random.key(0), jnp.zeros((2, 3, 3, 1)), 1)
