import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.data.transforms import flip, overlay, pad, random_offset, translate


def shift(key, image, max_shift):
    return translate(image, random_offset(key, max_shift), max_shift)


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


def test_pad_puts_in_the_middle():
    image = jnp.ones((3, 2, 1), jnp.uint8)
    padded = np.asarray(pad(image, (6, 4)))
    assert padded.dtype == np.uint8
    expected = np.zeros((6, 4, 1))
    expected[1:4, 1:3] = 1  # the odd row is at the bottom
    np.testing.assert_array_equal(padded, expected)


def test_flip():
    image = jnp.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(flip(image), image[:, ::-1])
    np.testing.assert_array_equal(flip(image, False), image)


def test_overlay_adds_ink_up_to_one():
    images = np.zeros((2, 1, 3, 1), np.uint8)
    images[:, 0, :, 0] = [[0, 102, 204], [51, 102, 204]]
    np.testing.assert_allclose(overlay(jnp.asarray(images))[0, :, 0], [0.2, 0.8, 1.0], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda image: pad(image, (4, 9)), r"size: \(4, 9\) is smaller than the image \(5, 5, 1\)"),
        (lambda image: flip(image[None]), r"expected one image.*\(1, 5, 5, 1\)"),
        (lambda image: translate(image[None], jnp.zeros(2, int), 1), "expected one image"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.zeros((5, 5, 1)))
