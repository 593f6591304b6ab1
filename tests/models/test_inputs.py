"""Images as networks take them: checked, scaled to [0, 1] and normalised."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.building import apply, build

MEAN, STD = (0.5, 0.25, 0.4), (0.2, 0.1, 0.3)
TINY = {"kernel_size": 3, "width": 1 / 32}
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 9, 9, 3), np.uint8)
UNIT = jnp.asarray(IMAGES / np.float32(255))


def capsnet(**options):
    return build("sabour2017_capsnet", (9, 9, 3), 10, **TINY, **options)


def test_networks_see_normalised_images():
    inside = apply(capsnet(mean=MEAN, std=STD), UNIT)
    outside = apply(capsnet(), (UNIT - jnp.array(MEAN)) / jnp.array(STD))
    np.testing.assert_allclose(inside.reconstruction, outside.reconstruction, rtol=1e-4, atol=1e-6)


def test_bytes_are_scaled():
    model = capsnet()
    chex.assert_trees_all_close(apply(model, jnp.asarray(IMAGES)), apply(model, UNIT), rtol=1e-4)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        (MEAN, (), "mean and std must have 3 numbers each"),
        (MEAN, (0.2, 0.0, 0.3), "std must be positive"),
        (("a",), (1.0,), "each of mean must be a number"),
    ],
)
def test_bad_normalization(mean, std, message):
    with pytest.raises(ValueError, match=message):
        capsnet(mean=mean, std=std)(UNIT)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (UNIT[0], ValueError, r"\[n, 9, 9, 3\], got \[9, 9, 3\]"),
        (jnp.zeros((1, 9, 9, 3), jnp.int32), ValueError, "uint8"),
        ([UNIT[0]], TypeError, "images must be an array, got list"),
    ],
)
def test_bad_images(images, error, message):
    with pytest.raises(error, match=message):
        capsnet()(images)


@pytest.mark.parametrize("keys", [jax.random.key(0), jax.random.split(jax.random.PRNGKey(0), 2)])
def test_keys_are_one_for_each_image(keys):
    with pytest.raises(
        ValueError, match=r"one per image, jax.random.split\(jax.random.key\(0\), 2"
    ):
        capsnet()(UNIT, keys=keys)
