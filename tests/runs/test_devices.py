"""A run is a function of its seed and global batch, not of the number of devices."""

from dataclasses import dataclass

import jax
import pytest
from flax import nnx

from capsjax import layers, models
from capsjax.functional import safe_norm, to_unit
from capsjax.runs import loop
from capsjax.training import config as configs


@dataclass(frozen=True)
class DroppingConfig:
    capsules: int = 8
    keep: float = 0.5


class Dropping(nnx.Module):
    """Small, and with dropout."""

    def __init__(self, input_shape, num_classes, config, *, rngs):
        height, width, channels = input_shape
        features = 4 * config.capsules
        self.keep = config.keep
        self.dense = nnx.Linear(height * width * channels, features, rngs=rngs)
        self.classes = layers.DenseCapsules(config.capsules, 4, num_classes, 8, rngs=rngs)

    def __call__(self, images, *, mask=None, keys=None, capture=False):
        x = nnx.relu(self.dense(to_unit(images).reshape(len(images), -1)))
        poses = layers.dropout(x, keys, keep=self.keep).reshape(len(images), -1, 4)
        return models.Output(safe_norm(self.classes(poses).poses))


@pytest.fixture
def config(npz):
    """56 steps on shifted images."""
    models.register("dropping", Dropping, DroppingConfig())
    config = configs.default("dropping", f"npz:{npz}")
    config.data.max_shift = 2
    config.training.batch_size = 24
    config.training.epochs = 8
    config.training.log_every_steps = 1
    return config


def losses(history):
    return [r["loss"] for r in history.records if r["split"] == "train"]


def test_the_number_of_devices_does_not_matter(config, tmp_path):
    one, eight = (
        losses(loop.train(config, tmp_path / str(n), devices=jax.devices()[:n]).history)
        for n in (1, 8)
    )
    assert len(one) == 56
    assert eight == pytest.approx(one, rel=1e-5)


def test_dropout_and_shifts_are_at_work(config, tmp_path):
    config.training.epochs = 1
    whole = losses(loop.train(config, tmp_path / "a", devices=jax.devices()[:1]).history)
    config.model.keep = 1.0
    undropped = losses(loop.train(config, tmp_path / "b", devices=jax.devices()[:1]).history)
    config.data.max_shift = 0
    unshifted = losses(loop.train(config, tmp_path / "c", devices=jax.devices()[:1]).history)
    assert abs(whole[0] / undropped[0] - 1) > 1e-3
    assert abs(undropped[0] / unshifted[0] - 1) > 1e-3
