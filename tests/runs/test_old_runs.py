"""Runs of earlier versions are still read, evaluated and resumed.

`old_run` was made at commit 7e42f4e: a CapsNet of 535 parameters, trained for two epochs on the
digits of `tests.tiny.write_digits`; `expected.json` is what that commit then read from it.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from capsjax.runs import checkpoints, loop
from tests.tiny import write_digits

OLD = Path(__file__).parent / "old_run"
EXPECTED = json.loads((OLD / "expected.json").read_text())


def test_the_network_scores_as_before():
    checkpoint = checkpoints.read(OLD)
    assert checkpoint.step == EXPECTED["step"]
    assert checkpoint.history.to_json() == EXPECTED["history"]
    images = np.linspace(0, 1, 2 * 64, dtype=np.float32).reshape(2, 8, 8, 1)
    np.testing.assert_allclose(checkpoint.model(images).scores, EXPECTED["scores"], atol=1e-6)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The directory of the run, which is copied to `tmp_path`, beside its data."""
    shutil.copytree(OLD, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "digits.npz")
    config = checkpoints.read(OLD).config
    with config.unlocked():
        del config.task
    return config


def test_training_finds_it_finished(config, tmp_path, capsys):
    """The config is the same to the last key, and the optimizer's state fits."""
    result = loop.train(config, tmp_path / "run", devices=jax.devices()[:1])
    assert "finished before, at step 14" in capsys.readouterr().out
    assert int(result.state.step) == 14
    assert result.history.to_json() == EXPECTED["history"]


def test_training_goes_on_from_it(config, tmp_path, capsys):
    config.training.epochs = 3
    result = loop.train(config, tmp_path / "run", devices=jax.devices()[:1])
    assert "resuming at step 14" in capsys.readouterr().out
    assert int(result.state.step) == 21
    before = EXPECTED["history"]["records"]
    assert result.history.to_json()["records"][: len(before)] == before


def test_another_config_is_still_told_apart(config, tmp_path):
    config.training.epochs = 1
    with pytest.raises(ValueError, match=r"asked for:\n  training\.epochs: 2 → 1$"):
        loop.train(config, tmp_path / "run", devices=jax.devices()[:1])
