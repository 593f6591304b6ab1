"""Several seeds in one call: each as if it had been trained alone."""

import json
import os
import shutil
import signal
import statistics

import jax
import numpy as np
import pytest

from capsjax.training import checkpoints, loop, parallel, seeds, signals
from tests.tiny import quick_config

TWO = jax.devices()[:2]


def seed_config(npz):
    config = quick_config(npz)
    config.seed, config.seeds = 3, 2
    return config


@pytest.fixture
def config(npz):
    return seed_config(npz)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, npz):
    """Side by side, and the same one after another."""
    config = seed_config(npz)
    place = tmp_path_factory.mktemp("seeds")
    return {
        how: (place / how, seeds.train(config, place / how, together=how, devices=TWO))
        for how in ("yes", "no")
    }


def bits(result):
    return [x.tobytes() for x in jax.tree.leaves(result.state)], result.history.to_json()


def test_one_after_another_is_each_alone(trained, config, tmp_path):
    config.seed, config.seeds = 4, 1
    alone = loop.train(config, tmp_path / "run", devices=TWO)
    directory, several = trained["no"]
    assert bits(several.results[4]) == bits(alone)
    # Its directory is that run's.
    again = loop.train(config, directory / "seed_4", devices=TWO)
    assert bits(again) == bits(alone)


def test_side_by_side_is_the_same_but_for_rounding(trained):
    together, apart = (trained[how][1].results for how in ("yes", "no"))
    for seed in (3, 4):
        ours, theirs = (
            [r["loss"] for r in of[seed].history.records if r["split"] == "train"]
            for of in (together, apart)
        )
        assert ours == pytest.approx(theirs, abs=1e-4)
        _, config = checkpoints.restore(trained["yes"][0] / f"seed_{seed}")
        assert (config.seed, config.seeds) == (seed, 1)
    assert together[3].history.records != together[4].history.records


def test_summary(trained):
    for directory, several in trained.values():
        summary = json.loads((directory / "seeds.json").read_text())
        assert summary == several.summary
        best = [max(r.history.validation_accuracy().values()) for r in several.results.values()]
        assert summary["seeds"] == [3, 4]
        assert summary["best"]["by_seed"] == best
        assert summary["best"]["mean"] == pytest.approx(np.mean(best))
        assert summary["best"]["std"] == pytest.approx(statistics.stdev(best))


# Side by side, the second seed's last checkpoint may be one older than the first's.
@pytest.mark.parametrize("lost", [False, True], ids=["stopped", "killed between two saves"])
def test_interrupted_side_by_side_is_bit_identical(trained, config, tmp_path, monkeypatch, lost):
    directory = tmp_path / "run"
    end = loop.Display.epoch

    def terminate(self, *args):
        end(self, *args)
        if args[-1] == "seed 3  ":
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Display, "epoch", terminate)
        with pytest.raises(signals.Interrupted):
            seeds.train(config, directory, together="yes", devices=TWO)
    assert not (directory / "seeds.json").exists()
    if lost:
        shutil.rmtree(directory / "seed_4" / "checkpoints" / "7")
    again = seeds.train(config, directory, together="yes", devices=TWO)
    for seed in (3, 4):
        assert bits(again.results[seed]) == bits(trained["yes"][1].results[seed])


def test_a_finished_call_is_not_repeated(trained, config, capsys):
    directory, several = trained["yes"]
    again = seeds.train(config, directory, together="no", devices=TWO)
    assert capsys.readouterr().out.count("finished before") == 2
    assert again.summary == several.summary


def test_memory_decides(config, tmp_path, monkeypatch, capsys):
    for limit, expected in ((None, "one after"), (10**4, "one after"), (10**9, "side by side")):
        monkeypatch.setattr(seeds, "memory_limit", lambda devices, limit=limit: limit)
        monkeypatch.setattr(seeds, "train_runs", _nothing)
        seeds.train(config, tmp_path / str(limit), devices=TWO)
        assert f"Seeds 3 to 4, {expected}" in capsys.readouterr().out


def _nothing(setup, directories, **_):
    return [loop.Result(None, loop.History()) for _ in directories]


def test_cpus_do_not_tell_their_memory():
    assert parallel.memory_limit(TWO) is None


@pytest.mark.parametrize(
    ("key", "value", "options", "message"),
    [
        ("seeds", 0, {}, "seeds must be at least 1, got 0"),
        ("seeds", 2, {"together": "maybe"}, "together must be"),
        ("seeds", 2, {"together": "yes", "device_budget_mb": 0.001}, "are fed from the host"),
        ("stop", 0.5, {"together": "yes"}, "stop_at_accuracy ends each run at its own"),
        ("seeds", 2, {"stall_seconds": -1}, "stall_seconds must be"),
    ],
)
def test_bad_values(config, tmp_path, key, value, options, message):
    if key == "stop":
        config.training.stop_at_accuracy = value
    else:
        config[key] = value
    with pytest.raises(ValueError, match=message):
        seeds.train(config, tmp_path / "run", devices=TWO, **options)
    assert not (tmp_path / "run").exists()


def test_one_run_is_for_one_seed(config, tmp_path):
    with pytest.raises(ValueError, match=r"seeds must be 1 here, got 2: .*seeds\.train"):
        loop.train(config, tmp_path / "run", devices=TWO)


def test_the_directory_of_several_is_no_run(trained):
    with pytest.raises(FileNotFoundError, match=r"several seeds: choose one, such as .*seed_3"):
        checkpoints.restore(trained["no"][0])
