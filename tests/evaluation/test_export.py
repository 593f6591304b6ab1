import jax
import numpy as np
import pytest
from flax import nnx

from capsjax import models
from capsjax.evaluation.export import export_scores


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize("name", ["efficient_capsnet_mnist", "gu2021_convnet_r"])
def test_networks_are_exported_for_batches_of_any_size(name):
    model = models.create(name, (28, 28, 1), 10, rngs=nnx.Rngs(0), width=0.25)
    exported = jax.export.deserialize(bytearray(export_scores(model, (28, 28, 1))))
    model.eval()
    for count in (1, 3):
        shape = (count, 28, 28, 1)
        images = np.random.default_rng(count).integers(256, size=shape, dtype=np.uint8)
        np.testing.assert_allclose(exported.call(images), model(images).scores, atol=1e-5)


@pytest.mark.symbolic_sizes
def test_slots_are_exported_for_batches_of_any_size():
    small = {"features": 8, "slot_size": 8, "mlp_size": 8}
    model = models.create("slots_tetrominoes", (20, 20, 3), 7, rngs=nnx.Rngs(0), **small)
    exported = jax.export.deserialize(bytearray(export_scores(model, (20, 20, 3))))
    images = np.random.default_rng(0).integers(256, size=(3, 20, 20, 3), dtype=np.uint8)
    model.eval()
    np.testing.assert_allclose(exported.call(images), model(images).scores, atol=1e-5)
