"""Files that scripts write, and files of others that they read."""

import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capsjax.runs import checkpoints, release
from capsjax.training import config as configs
from tests.faults.commands import assert_told, fill, finish, quick, run, start

pytestmark = pytest.mark.slow


@pytest.fixture
def image(tmp_path):
    file = tmp_path / "digit.png"
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file)
    return file


WRITERS = [
    "predict.py --checkpoint={run} {image} --output={file}.csv",
    "predict.py --checkpoint={run} {image} --output={file}.json",
    "predict.py --checkpoint={run} {image} --output={file}.html",
    "predict.py --checkpoint={run} --export={file}",
    "evaluate.py --checkpoint={run} --output={file}",
    "report.py {run} --output={file}",
    "report.py {run} --poses={file}",
    "data.py npz:{npz} --out={file}.png",
    "data.py npz:{npz} --export={file}.npz",
    "benchmark.py models --names=lin2018_cnn --batch_size=1 --repeats=1 --output={file}",
    "release.py --checkpoint={run} --output={file}.safetensors",
]


@pytest.mark.parametrize("command", WRITERS)
def test_a_full_disk_is_named_and_keeps_the_old_file(small_disk, tiny_run, npz, image, command):
    file = small_disk / "old"
    words = command.format(run=tiny_run, npz=npz, image=image, file=file).split()
    written = Path(words[-1].partition("=")[2])
    is_new = written.suffix == ".safetensors"  # a release replaces nothing
    if not is_new:
        written.write_text("old")
    fill(small_disk, 400)
    assert_told(run(*words), f"{written}: No space left on device")
    assert written.exists() != is_new
    assert is_new or written.read_text() == "old"


def test_a_released_network_that_does_not_fit(tiny_run, tmp_path):
    """What else others may have written into one: tests/runs/test_release.py."""
    checkpoint = checkpoints.read(tiny_run)
    config, history = configs.to_json(checkpoint.config), checkpoint.history.to_json()
    config["model"] |= {"class_pose": 8}
    about = {"config": config, "history": history, "step": 7}
    file = release.write(tmp_path / "made.safetensors", checkpoint.model, about)
    told = f"{file} does not hold the variables of"
    assert_told(run("evaluate.py", f"--checkpoint={file}"), told)


def test_a_work_directory_that_vanishes(npz, tmp_path):
    directory = tmp_path / "run"
    many = "--config.training.epochs=3000"
    process = start("train.py", quick(npz), f"--workdir={directory}", many)
    while not (directory / "checkpoints" / "21").exists():
        assert process.poll() is None
        time.sleep(0.05)
    directory.rename(tmp_path / "elsewhere")
    assert_told(finish(process), f"{directory} was removed during training: nothing can be saved")
