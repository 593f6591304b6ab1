"""Every task is trained on and evaluated, at the smallest size that runs."""

import json

import evaluate
import numpy as np
import pytest

from capsjax.data import tasks
from capsjax.runs.loop import train
from capsjax.training import config as configs


@pytest.fixture(scope="module")
def config(npz):
    def make(name):
        config = configs.default("sabour2017_capsnet", name)
        config.model.kernel_size = 3
        config.model.width = 1 / 32
        config.data.source = f"npz:{npz}"
        if "canvas" in config.data:
            config.data.canvas = 12
            config.data.max_shift = 2
        config.training.batch_size = 80
        config.training.epochs = 1
        return config

    return make


# The others differ in how images are generated, which tests/data/test_tasks.py tests.
QUICK = ("affnist_generated", "multimnist")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in tasks.generated()
        if name != "tetrominoes"  # tests/experiments/test_slots.py
    ],
)
def test_trains_and_evaluates(config, tmp_path, capsys, name):
    run = tmp_path / "run"
    result = train(config(name), run)
    assert np.isfinite(result.history.epoch_means(1)["loss"])
    assert result.history.epoch_means(1)["reconstruction"] > 0
    assert list(result.history.validation_accuracy()) == [2]
    arguments = evaluate.parser().parse_args([f"--checkpoint={run}"])
    evaluate.main(arguments)
    assert capsys.readouterr().out.splitlines()[-1].startswith("test accuracy: ")
    results = json.loads((run / f"evaluation_{name}_test.json").read_text())
    assert results["dataset"] == name
    assert results["images"] == (1600 if name == "affnist_generated" else 50)
    if "multimnist" in name:
        shown = sum(c["images"] for c in results["per_class"])
        assert shown == 100 or (name == "diverse_multimnist" and 50 < shown < 100)
        assert all(c["found"] <= c["images"] for c in results["per_class"])


def test_a_network_is_evaluated_on_another_task(config, tmp_path, npz, monkeypatch):
    """Trained on translated digits, tested on a generated set."""
    run = tmp_path / "run"
    train(config("mnist_translated"), run)
    small = tasks.AffNIST(source=f"npz:{npz}", canvas=12, max_shift=2, test_versions=2)
    monkeypatch.setitem(tasks._GENERATED, "affnist_generated", small)
    arguments = [f"--checkpoint={run}", "--dataset=affnist_generated"]
    evaluate.main(evaluate.parser().parse_args([*arguments, "--split=test_translated"]))
    assert (run / "evaluation_affnist_generated_test_translated.json").exists()
