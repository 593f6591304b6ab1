import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.building import apply, build


@pytest.fixture(scope="module")
def model():
    """Images that patches of 4×4 pixels do not fill."""
    sizes = {"features": 8, "num_layers": 1, "slot_size": 6, "mlp_size": 5, "num_slots": 3}
    return build("slots_tetrominoes", (10, 9, 2), 3, patch=4, **sizes)


@pytest.fixture(scope="module")
def images():
    return jax.random.uniform(jax.random.key(0), (2, 10, 9, 2))


def test_the_reconstruction_is_the_mean_of_the_parts_by_the_masks(model, images):
    output = apply(model, images, capture=True)
    features = output.features
    shapes = {name: x.shape[1:] for name, x in features.items()}
    assert shapes == {
        "map": (3, 3, 8),
        "slots": (3, 6),
        "parts": (3, 10, 9, 2),
        "masks": (3, 10, 9),
    }
    np.testing.assert_allclose(features["masks"].sum(1), 1, rtol=1e-5)
    expected = np.einsum("njhw,njhwc->nhwc", features["masks"], features["parts"])
    np.testing.assert_allclose(output.reconstruction, expected, rtol=1e-5, atol=1e-6)
    logits = model.classifier(features["slots"])
    np.testing.assert_allclose(output.scores, logits.max(1), rtol=1e-5, atol=1e-6)
    chex.assert_shape(output.routed["slots"].coupling, (2, 9, 3))


def test_patches_and_pixels_are_inverse(model, images):
    pixels = model._to_pixels(model._to_patches(images))[:, :10, :9]
    np.testing.assert_array_equal(pixels, images)
    assert model._to_pixels(model._to_patches(images[:0])).shape == (0, 12, 12, 2)


def test_scores_do_not_train_the_slots(model, images):
    grads = jax.grad(lambda images: model(images).scores.sum())(images)
    np.testing.assert_array_equal(grads, 0)


def test_training_draws_the_first_slots_of_each_image(model, images):
    twice = jnp.stack([images[0], images[0]])
    keys = jax.random.split(jax.random.key(0))
    slots = model(twice, keys=keys, capture=True).features["slots"]
    assert not np.allclose(slots[0], slots[1], atol=1e-3)
    slots = model(twice, capture=True).features["slots"]
    np.testing.assert_allclose(slots[0], slots[1], rtol=1e-4, atol=1e-5)
