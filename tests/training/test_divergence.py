import jax
import numpy as np
import pytest

from capsjax.runs import loop
from capsjax.runs.history import Diverged
from capsjax.training import build, divergence
from tests.tiny import quick_config, tiny_config

ONE = jax.devices()[:1]


@pytest.mark.parametrize(
    ("num_devices", "budget"),
    [
        pytest.param(1, 2048.0, id="resident"),
        pytest.param(4, 0.001, id="fed, four devices", marks=pytest.mark.slow),
    ],
)
def test_a_learning_rate_that_is_too_high(npz, tmp_path, num_devices, budget):
    config, devices = tiny_config(npz), jax.devices()[:num_devices]
    config.optimizer.learning_rate = config.schedule.minimum = 1e30
    with pytest.raises(
        Diverged,
        match=r"loss is nan at step 2 \(epoch 1\): the first numbers that are not finite are those "
        r"of 'primary'\. Training stopped; no checkpoint yet",
    ):
        loop.train(config, tmp_path / "run", devices=devices, device_budget_mb=budget)
    assert not list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))


def test_a_step_that_validation_sees_first(npz, tmp_path):
    config = tiny_config(npz)
    config.optimizer.learning_rate = config.schedule.minimum = 1e30
    config.training.batch_size = 180  # all that are not held out: one step in an epoch
    with pytest.raises(Diverged, match=r"held-out images are not finite after step 1\."):
        loop.train(config, tmp_path / "run", devices=ONE)


def test_a_parameter_that_is_not_finite_is_named(npz, tmp_path, monkeypatch):
    init_state = build.init_state

    def spoiled(model, optimizer, **options):
        model.primary.conv.kernel[0, 0, 0, 0] = np.inf
        return init_state(model, optimizer, **options)

    monkeypatch.setattr(build, "init_state", spoiled)
    with pytest.raises(
        Diverged,
        match=r"at step 1 \(epoch 1\): .* those of the variable 'primary/conv/kernel' before",
    ):
        loop.train(tiny_config(npz), tmp_path / "run", devices=ONE)


def test_the_last_good_checkpoint_is_named(npz, tmp_path, monkeypatch):
    """And nothing is found where nothing is: the state before the step is as it was."""
    add_steps = loop.History.add_steps

    def diverging(self, first, metrics, **options):
        if first >= 7:
            metrics = metrics | {"loss": np.full_like(metrics["loss"], np.nan)}
        add_steps(self, first, metrics, **options)

    monkeypatch.setattr(loop.History, "add_steps", diverging)
    with pytest.raises(Diverged) as error:
        loop.train(quick_config(npz), tmp_path / "run", devices=ONE)
    assert "loss is nan at step 8 (epoch 2): computed once more, all of that" in str(error.value)
    assert f"the checkpoint of step 7 stays in {tmp_path / 'run'}" in str(error.value)


def test_the_first_is_said():
    parts = {"'conv'": np.True_, "'primary'": np.False_, "'a'": np.False_}
    assert divergence.describe(parts).endswith("not finite are those of 'primary'")
