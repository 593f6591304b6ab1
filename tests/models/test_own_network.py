"""The example of docs/models.md runs, on images of another size and on a user's own file."""

import numpy as np
import pytest
from flax import nnx

from capsjax import restore
from tests.pages import ROOT, blocks

PAGE = (ROOT / "docs" / "models.md").read_text()


@pytest.fixture
def images(tmp_path):
    """Noise of 13×18 with two channels."""
    images = np.random.default_rng(0).integers(0, 256, (40, 13, 18, 2), np.uint8)
    path = tmp_path / "my_images.npz"
    np.savez(path, images=images, labels=np.arange(40) % 2)
    return path


def test_a_network_of_ones_own(images, tmp_path):
    example = blocks(PAGE, "python")[-1]
    assert len(example.split("class Mine(")[1].splitlines()) <= 30
    changes = {
        "my_images.npz": str(images),
        "runs/mine": str(tmp_path / "run"),
        "run.training.epochs = 5": "run.training.epochs = 2\nrun.training.batch_size = 8",
    }
    for old, new in changes.items():
        assert example.count(old) == 1, old
        example = example.replace(old, new)
    exec(example, {"__name__": "example"})
    model, config = restore(tmp_path / "run")
    assert config.model.name == "mine"
    forward = nnx.jit(lambda model, images: model(images, capture=True))
    output = forward(model, np.load(images)["images"][:3])
    assert output.scores.shape == (3, 2)
    assert output.routed["middle"].coupling.shape == (3, 4 * 5 * 16, 16)
