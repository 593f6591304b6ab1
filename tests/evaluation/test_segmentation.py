import jax
import numpy as np

from capsjax.data import tasks
from capsjax.evaluation.segmentation import foreground_ari, has_masks, segment
from tests.models.building import build


def test_segments_of_a_set(capsnet):
    sizes = {"features": 8, "num_layers": 1, "slot_size": 6, "mlp_size": 5}
    model = build("slots_tetrominoes", (35, 35, 3), 7, **sizes)
    examples = tasks.create("tetrominoes", test_images=5).evaluation_set("test")
    segmented = segment(model, examples, batch_size=2)
    batch = examples.examples(np.arange(5))
    np.testing.assert_array_equal(segmented.image, batch.image)
    for k in range(3):
        own = np.where((segmented.objects == k + 1)[..., None], segmented.image, 0)
        np.testing.assert_array_equal(own, batch.objects.images[:, k])
    output = jax.jit(lambda images: model(images, capture=True))(batch.image)
    np.testing.assert_allclose(segmented.masks, output.features["masks"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(segmented.reconstruction, output.reconstruction, atol=1e-5)
    assert has_masks(model, (35, 35, 3))
    assert not has_masks(capsnet, (12, 12, 1))


def test_index_of_the_foreground():
    objects = np.zeros((1, 4, 4), int)
    objects[0, 0], objects[0, 1] = 1, 2
    slots = np.random.default_rng(0).integers(0, 3, (1, 4, 4))
    slots[0, 0], slots[0, 1] = 2, 0  # whatever the background is
    masks = np.moveaxis(np.eye(3)[slots], -1, 1)
    assert foreground_ari(masks, objects) == [1]
    slots[0, 1] = 2
    assert foreground_ari(np.moveaxis(np.eye(3)[slots], -1, 1), objects) == [0]
