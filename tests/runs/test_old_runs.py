"""Runs, configs and released files of earlier versions are still read, evaluated and resumed.

`old_run` was made at commit 7e42f4e: a CapsNet of 535 parameters, trained for two epochs on the
digits of `tests.tiny.write_digits`. `old_run_46ff588` is a CNN of 1,018 parameters, made in the
same way at commit 46ff588, which also released it. `expected.json` is what these commits read.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from capsjax.runs import checkpoints, loop
from tests.tiny import write_digits

OLD = [Path(__file__).parent / name for name in ("old_run", "old_run_46ff588")]


def expected(old):
    return json.loads((old / "expected.json").read_text())


@pytest.mark.parametrize("path", [*OLD, OLD[1] / "release.safetensors"], ids=lambda p: p.name)
def test_the_network_scores_as_before(path):
    checkpoint = checkpoints.read(path, "latest")
    before = expected(path if path.is_dir() else path.parent)
    assert checkpoint.step == before["step"]
    assert checkpoint.history.to_json() == before["history"]
    images = np.linspace(0, 1, 2 * 64, dtype=np.float32).reshape(2, 8, 8, 1)
    np.testing.assert_allclose(checkpoint.model(images).scores, before["scores"], atol=1e-6)


@pytest.fixture(params=OLD, ids=lambda p: p.name)
def old(request, tmp_path, monkeypatch):
    """An old run, a copy of which is in `tmp_path` beside its data."""
    shutil.copytree(request.param, tmp_path / "run", ignore=lambda *_: ["release.safetensors"])
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "digits.npz")
    return request.param


@pytest.fixture
def config(old):
    config = checkpoints.read(old).config
    with config.unlocked():
        del config.task
    return config


def test_training_finds_it_finished(old, config, tmp_path, capsys):
    """The config is the same to the last key, and the optimizer's state fits."""
    result = loop.train(config, tmp_path / "run", devices=jax.devices()[:1])
    assert "finished before, at step 14" in capsys.readouterr().out
    assert int(result.state.step) == 14
    assert result.history.to_json() == expected(old)["history"]


def test_training_goes_on_from_it(old, config, tmp_path, capsys):
    config.training.epochs = 3
    result = loop.train(config, tmp_path / "run", devices=jax.devices()[:1])
    assert "resuming at step 14" in capsys.readouterr().out
    assert int(result.state.step) == 21
    before = expected(old)["history"]["records"]
    assert result.history.to_json()["records"][: len(before)] == before


def test_another_config_is_still_told_apart(config, tmp_path):
    config.seed = 1
    with pytest.raises(ValueError, match=r"asked for:\n  seed: 0 → 1$"):
        loop.train(config, tmp_path / "run", devices=jax.devices()[:1])
