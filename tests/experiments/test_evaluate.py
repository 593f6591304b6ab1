import errno
import json
import re
from unittest.mock import Mock

import evaluate
import numpy as np
import pytest
from flax import nnx

from capsjax import models
from capsjax.data import load
from capsjax.evaluation import ensemble
from capsjax.runs import checkpoints


def run(*arguments):
    evaluate.main(evaluate.parser().parse_args([str(a) for a in arguments]))


def test_as_a_user_runs_it(script, finished_run, npz):
    done = script("evaluate.py", f"--checkpoint={finished_run}")
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    assert "\x1b" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"test accuracy: \d+\.\d\d %", last)
    (file,) = finished_run.glob("evaluation_*_test.json")
    results = json.loads(file.read_text())
    assert last == f"test accuracy: {100 * results['accuracy']:.2f} %"
    assert results["dataset"] == f"npz:{npz}"
    assert results["images"] == len(load(f"npz:{npz}", "test").labels) == 50
    assert results["accuracy"] == results["correct"] / 50
    low, high = results["interval_95"]
    assert low < results["accuracy"] < high
    confusion = np.array(results["confusion"])
    assert confusion.trace() == results["correct"]
    assert [c["images"] for c in results["per_class"]] == confusion.sum(1).tolist()


def test_a_run_that_cannot_be_written_to(finished_run, capsys, monkeypatch):
    monkeypatch.setattr(evaluate._cli, "write", Mock(side_effect=OSError(errno.EROFS, "read-only")))
    run(f"--checkpoint={finished_run}")
    *_, said, _, last = capsys.readouterr().out.splitlines()
    assert said == "Not written ([Errno 30] read-only): --output=FILE writes it elsewhere."
    assert last.startswith("test accuracy: ")
    full = OSError(errno.ENOSPC, "full")  # an older file may be left, which is no result of this
    monkeypatch.setattr(evaluate._cli, "write", Mock(side_effect=full))
    with pytest.raises(OSError, match="full"):
        run(f"--checkpoint={finished_run}")


def test_another_split_step_and_file(finished_run, tmp_path, capsys):
    file = tmp_path / "new" / "results.json"
    run(f"--checkpoint={finished_run}", "--split=train", "--which=latest", f"--output={file}")
    results = json.loads(file.read_text())
    assert results["split"] == "train"
    assert results["images"] == 200
    assert results["step"] == 14
    assert capsys.readouterr().out.splitlines()[-1].startswith("train accuracy: ")
    assert not list(finished_run.glob("evaluation_*"))


def test_a_class_without_images_has_no_accuracy(finished_run, npz, tmp_path, capsys):
    data = load(f"npz:{npz}", "test")
    kept = data.labels != 3
    fewer = tmp_path / "fewer.npz"
    np.savez(
        fewer,
        images=data.images,
        labels=data.labels,
        test_images=data.images[kept],
        test_labels=data.labels[kept],
    )
    file = tmp_path / "results.json"
    run(f"--checkpoint={finished_run}", f"--dataset=npz:{fewer}", f"--output={file}")
    assert json.loads(file.read_text())["per_class"][3]["accuracy"] is None
    assert re.search(r"3 +│ +0 │ +0 │ +– │", capsys.readouterr().out)


def test_an_ensemble_scores_the_mean_of_its_members(finished_run, npz, capsys):
    run(f"--checkpoint={finished_run}", f"--checkpoint={finished_run}/.", "--which=latest")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].count("sabour2017_capsnet of") == 2
    (file,) = finished_run.glob("ensemble_of_2_*_test_latest.json")
    results = json.loads(file.read_text())
    assert [member["step"] for member in results["ensemble"]] == [14, 14]
    assert results["ensemble"][1]["checkpoint"] == f"{finished_run}/."
    # Of a network with itself: what the network alone says.
    run(f"--checkpoint={finished_run}", "--which=latest")
    (alone,) = finished_run.glob("evaluation_*_test_latest.json")
    assert json.loads(alone.read_text())["confusion"] == results["confusion"]


def test_networks_that_do_not_go_together(finished_run):
    first = checkpoints.read(finished_run)
    assert ensemble.join([first.model], [first.config]) is first.model
    other = first.config.copy_and_resolve_references()
    other.task.class_names = tuple("abcdefghij")
    with pytest.raises(ValueError, match="a config for each model, got 1 for 2"):
        ensemble.join([first.model, first.model], [first.config])
    with pytest.raises(ValueError, match=r"member 2 .* has class_names .*'a'.* the first"):
        ensemble.join([first.model, first.model], [first.config, other])
    other = first.config.copy_and_resolve_references()
    with other.unlocked():
        other.data.fit = "crop"
    with pytest.raises(ValueError, match=r"member 2 .* has data.fit crop, the first pad"):
        ensemble.join([first.model, first.model], [first.config, other])
    convnet = models.create("gu2021_convnet_fc", (8, 8, 1), 10, rngs=nnx.Rngs(0), kernel_size=3)
    with pytest.raises(ValueError, match="score with logits and some with lengths"):
        ensemble.join([first.model, convnet], [first.config] * 2)(np.zeros((1, 8, 8, 1)))
