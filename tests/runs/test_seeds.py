"""Several seeds in one call: each as if it had been trained alone."""

import json
import statistics
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from capsjax.runs import checkpoints, loop, seeds
from capsjax.runs.history import History
from tests.tiny import assert_same, quick_config

TWO = jax.devices()[:2]
RESULT = SimpleNamespace(history=History())


def seed_config(npz):
    config = quick_config(npz)
    config.seed, config.seeds = 3, 2
    return config


@pytest.fixture
def config(npz):
    return seed_config(npz)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, npz):
    """The directory of two seeds, and what training them returned."""
    directory = tmp_path_factory.mktemp("seeds") / "run"
    return directory, seeds.train_seeds(seed_config(npz), directory, devices=TWO)


def test_each_is_the_run_of_its_seed_alone(trained, config, tmp_path):
    config.seed, config.seeds = 4, 1
    alone = loop.train(config, tmp_path / "run", devices=TWO)
    directory, both = trained
    assert_same(both.results[4], alone)
    # Its directory is that run's.
    again = loop.train(config, directory / "seed_4", devices=TWO)
    assert_same(again, alone)


def test_summary(trained):
    directory, both = trained
    summary = json.loads((directory / "seeds.json").read_text())
    assert summary == both.summary
    best = [max(r.history.validation_accuracy().values()) for r in both.results.values()]
    assert summary["seeds"] == [3, 4]
    assert summary["best"]["by_seed"] == best
    assert summary["best"]["mean"] == pytest.approx(np.mean(best))
    assert summary["best"]["std"] == pytest.approx(statistics.stdev(best))
    assert both.results[3].history.records != both.results[4].history.records
    _, config = checkpoints.restore(directory / "seed_4")
    assert (config.seed, config.seeds) == (4, 1)


def test_a_finished_call_is_not_repeated(trained, config, capsys):
    directory, both = trained
    again = seeds.train_seeds(config, directory, devices=TWO)
    assert capsys.readouterr().out.count("finished before") == 2
    assert again.summary == both.summary


def test_an_older_directory_keeps_its_random_numbers(config, tmp_path, monkeypatch):
    versions = []
    monkeypatch.setattr(seeds, "train", lambda own, *_: versions.append(own.key_version) or RESULT)
    config.key_version = 1
    seeds.train_seeds(config, tmp_path)
    config.key_version = 2
    seeds.train_seeds(config, tmp_path)
    assert versions == [1, 1, 1, 1]


def test_the_directory_of_several_is_no_run(trained):
    with pytest.raises(FileNotFoundError, match="the seed_N in it where there are several"):
        checkpoints.restore(trained[0])
