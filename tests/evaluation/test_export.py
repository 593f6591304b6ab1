import jax
import numpy as np
import pytest
from flax import nnx

from capsjax import models
from capsjax.evaluation.export import export_scores


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [
        ("efficient_capsnet_mnist", (28, 28, 1), {"width": 0.25}),
        ("gu2021_convnet_r", (28, 28, 1), {"width": 0.25}),
        ("slots_tetrominoes", (20, 20, 3), {"features": 8, "slot_size": 8, "mlp_size": 8}),
    ],
)
def test_networks_are_exported_for_batches_of_any_size(name, shape, sizes):
    model = models.create(name, shape, 10, rngs=nnx.Rngs(0), **sizes)
    exported = jax.export.deserialize(bytearray(export_scores(model, shape)))
    model.eval()
    for count in (1, 3):
        images = np.random.default_rng(count).integers(256, size=(count, *shape), dtype=np.uint8)
        np.testing.assert_allclose(exported.call(images), model(images).scores, atol=1e-5)
