"""Files that scripts write, and files of others that they read."""

import json
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
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


@pytest.mark.parametrize("suffix", [".csv", ".json", ".html"])
def test_names_that_are_formulas_or_not_utf8(tiny_run, image, tmp_path, suffix):
    """They replace an old file whole; no cell of the table is a formula."""
    names = ["+a.png", "-b.png", "=1+1.png", "@c.png", "a\udcff.png"]
    folder = tmp_path / "named"
    folder.mkdir()
    for name in names:
        shutil.copy(image, folder / name)
    output = tmp_path / f"old{suffix}"
    output.write_text("old")
    done = run("predict.py", f"--checkpoint={tiny_run}", f"--output={output}", folder)
    assert done.code == 0, done.err
    text = output.read_text()
    assert all(name.replace("\udcff", r"\udcff") in text for name in names)


PIXELS = {
    "floats above 1": (np.float32, 508, "unknown range (0.0 to 508.0)"),
    "12 bits in 16": (np.uint16, 4095, "unknown range (0 to 4095)"),
    "floats to 1": (np.float32, 1, None),
    "8 bits in 32": (np.int32, 255, None),
}


@pytest.mark.parametrize("case", PIXELS)
def test_pixels_of_other_types(tiny_run, tmp_path, case):
    dtype, full, message = PIXELS[case]
    levels = np.linspace(0, 1, 64).reshape(8, 8) * full
    Image.fromarray(levels.astype(dtype)).save(tmp_path / "x.tif")
    output = tmp_path / "x.json"
    done = run("predict.py", f"--checkpoint={tiny_run}", tmp_path / "x.tif", f"--output={output}")
    assert (done.code == 0) == (message is None), done.err
    results = json.loads(output.read_text())
    if message is None:
        assert results["images"][0]["done"] == [f"0 to {full} made 0 to 255"]
    else:
        assert message in results["not_read"][str(tmp_path / "x.tif")]


def _described(checkpoint):
    history = checkpoint.history.to_json()
    return {"config": configs.to_json(checkpoint.config), "history": history, "step": 7}


def _with(section, key, value):
    def change(about):
        about["config"][section][key] = value
        return about

    return change


OTHERS = {
    "a list": (lambda about: [], "its metadata must be an object of JSON, got []"),
    "null": (lambda about: None, "its metadata must be an object of JSON"),
    "no config": (lambda about: about | {"config": None}, "config must be an object of JSON"),
    "numbers for names": (
        _with("task", "class_names", [1, 2]),
        "each of config.task.class_names must be a string, got 1",
    ),
    "a later version": (
        lambda about: about | {"config": about["config"] | {"key_version": 99}},
        "key_version must be from 1 to 2",
    ),
    "no history": (lambda about: about | {"history": 3}, "history must be an object of JSON, got"),
    "another network": (_with("model", "class_pose", 8), "does not hold the variables of"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_released_networks_of_others(tiny_run, tmp_path, case):
    change, message = OTHERS[case]
    checkpoint = checkpoints.read(tiny_run)
    about = json.loads(json.dumps(_described(checkpoint)))
    file = release.write(tmp_path / "made.safetensors", checkpoint.model, change(about))
    done = run("evaluate.py", f"--checkpoint={file}")
    assert_told(done, str(file))
    assert_told(done, message)


def test_a_released_network_of_nan(tiny_run, tmp_path):
    checkpoint = checkpoints.read(tiny_run)
    graphdef, state = nnx.split(checkpoint.model)
    state = jax.tree.map(lambda x: np.full(x.shape, np.nan, x.dtype), state)
    file = tmp_path / "nan.safetensors"
    release.write(file, nnx.merge(graphdef, state), _described(checkpoint))
    done = run("evaluate.py", f"--checkpoint={file}")
    assert_told(done, "holds numbers that are not finite")


RUNS = {
    "metadata": ("checkpoints/14/about/metadata", "[]", "about/metadata"),
    "no metadata": ("checkpoints/14/about/metadata", None, "about/metadata is missing"),
    "not a run": ("checkpoints", None, "has no checkpoints"),
}


@pytest.mark.parametrize("case", RUNS)
def test_runs_of_others(tiny_run, tmp_path, case):
    name, text, message = RUNS[case]
    directory = shutil.copytree(tiny_run, tmp_path / "run")
    path = directory / name
    if text is not None:
        path.write_text(text)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    done = run("evaluate.py", f"--checkpoint={directory}", "--which=14")
    assert_told(done, str(directory))
    assert_told(done, message)


def test_links_that_loop(tiny_run, image, tmp_path):
    (tmp_path / "again").symlink_to(tmp_path)
    done = run("predict.py", f"--checkpoint={tiny_run}", f"{tmp_path}/**/*.png")
    assert done.code == 0, done.err
    assert done.out.count(image.name) == 1


def test_a_work_directory_that_vanishes(npz, tmp_path):
    directory = tmp_path / "run"
    many = "--config.training.epochs=3000"
    process = start("train.py", quick(npz), f"--workdir={directory}", many)
    while not (directory / "checkpoints" / "21").exists():
        assert process.poll() is None
        time.sleep(0.05)
    directory.rename(tmp_path / "elsewhere")
    assert_told(finish(process), f"{directory} was removed during training: nothing can be saved")
