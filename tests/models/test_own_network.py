"""The example of docs/models.md runs, on images of another size and on a user's own file."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax import models, restore
from capsjax.runs import loop
from capsjax.training import config as training_config
from tests.models.building import apply
from tests.pages import blocks
from tests.processes import ROOT

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
    output = apply(model, np.load(images)["images"][:3], capture=True)
    assert output.scores.shape == (3, 2)
    assert output.routed["middle"].coupling.shape == (3, 4 * 5 * 16, 16)


class Centred(nnx.Module):
    """A network with a running statistic of its own."""

    def __init__(self, input_shape, num_classes, config, *, rngs):
        self.linear = nnx.Linear(input_shape[-1], num_classes, rngs=rngs)
        self.mean = nnx.BatchStat(jnp.zeros(input_shape[-1]))

    def __call__(self, images, *, mask=None, keys=None, capture=False):
        x = images.mean((1, 2))
        if keys is not None:
            self.mean[...] = 0.5 * self.mean[...] + x.mean(0)
        return models.Output(self.linear(x - self.mean[...]))


def test_its_statistics_are_those_of_all_devices(npz, tmp_path):
    models.register("centred", Centred, Nothing())
    config = training_config.default("centred", f"npz:{npz}")
    config.training.batch_size, config.training.epochs = 8, 1
    means = [
        loop.train(config, tmp_path / str(n), devices=jax.devices()[:n]).state.rest["mean"][...]
        for n in (1, 4)
    ]
    np.testing.assert_allclose(means[1], means[0], rtol=1e-5)
    # Its class has changed since.
    models.register(
        "centred", lambda shape, classes, config, *, rngs: Centred((3,), 9, 0, rngs=rngs), Nothing()
    )
    with pytest.raises(ValueError, match=r"variables of centred .*linear/bias: .*\[10\].*\[9\]"):
        restore(tmp_path / "1")


@dataclass(frozen=True)
class Nothing:
    """No options."""


class Wrong(nnx.Module):
    """A network that cannot be trained, in one of three ways."""

    def __init__(self, kind, input_shape, num_classes, *, rngs):
        self.kind = kind
        self.dropout = nnx.Dropout(0.5, rngs=rngs) if kind == "dropout" else None
        self.linear = nnx.Linear(input_shape[-1], num_classes - (kind == "scores"), rngs=rngs)

    def __call__(self, images, *, mask=None, keys=None, capture=False):
        scores = self.linear(images.mean((1, 2)))
        return scores if self.kind == "array" else models.Output(scores)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("dropout", ValueError, r"'wrong' keeps a stream of random numbers, dropout\.rngs"),
        ("array", TypeError, r"'wrong' must return a capsjax\.models\.Output, got"),
        ("scores", ValueError, r"must return scores \[n, 10\], got \(2, 9\) for 2 images"),
    ],
)
def test_what_cannot_be_trained_is_refused_before(npz, tmp_path, kind, error, message):
    def network(input_shape, num_classes, config, *, rngs):
        return Wrong(kind, input_shape, num_classes, rngs=rngs)

    models.register("wrong", network, Nothing())
    config = training_config.default("wrong", f"npz:{npz}")
    with pytest.raises(error, match=message):
        loop.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
