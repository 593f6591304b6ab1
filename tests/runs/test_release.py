import functools
import http.server
import json
import re
import threading

import jax
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

import capsjax
from capsjax.runs import checkpoints, release
from capsjax.training import config as configs


@pytest.fixture(scope="module")
def checkpoint(tiny_run):
    return checkpoints.read(tiny_run)


@pytest.fixture
def released(checkpoint, tmp_path):
    about = {
        "config": configs.to_json(checkpoint.config),
        "history": checkpoint.history.to_json(),
        "step": checkpoint.step,
    }
    return release.write(tmp_path / "folder" / "tiny.safetensors", checkpoint.model, about)


def same(model, other):
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), np.uint8)
    np.testing.assert_array_equal(model(images).scores, other(images).scores)


def test_a_file_holds_what_a_checkpoint_does(released, checkpoint):
    found = checkpoints.read(released)
    same(found.model, checkpoint.model)
    assert configs.differences(found.config, checkpoint.config) == []
    assert found.history.records == checkpoint.history.records
    assert checkpoints.read(released, checkpoint.step).step == checkpoint.step
    tensors = safetensors.numpy.load_file(released)
    assert tensors["primary/conv/kernel"].shape == checkpoint.model.primary.conv.kernel.shape
    assert sum(x.size for x in tensors.values()) == sum(
        x.size for x in nnx.to_flat_state(nnx.state(checkpoint.model)).leaves
    )


def test_from_an_address(released, checkpoint, monkeypatch):
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(released.parent)
    )
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        same(capsjax.restore(f"{address}/tiny.safetensors")[0], checkpoint.model)
        with pytest.raises(FileNotFoundError, match=r"none.safetensors: the server answers 404"):
            capsjax.restore(f"{address}/none.safetensors")
        server.shutdown()
    with pytest.raises(OSError, match="cannot be read"):
        capsjax.restore(f"{address}/tiny.safetensors")


def test_nothing_is_overwritten(released, checkpoint):
    before = released.read_bytes()
    with pytest.raises(FileExistsError, match="choose another name"):
        release.write(released, checkpoint.model, {})
    assert released.read_bytes() == before
    with pytest.raises(ValueError, match=r"must end in .safetensors, got 'x.bin'"):
        release.write("x.bin", checkpoint.model, {})


def test_a_flipped_bit_is_noticed(released):
    contents = bytearray(released.read_bytes())
    contents[-1] ^= 1
    released.write_bytes(contents)
    with pytest.raises(ValueError, match="its checksum does not match"):
        capsjax.restore(released)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_file_that_was_cut(released, keep):
    released.write_bytes(released.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"is damaged, or was not made by experiments/release.py"):
        capsjax.restore(released)


def test_files_of_others(tmp_path, released, checkpoint):
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(3)}, other)
    with pytest.raises(ValueError, match=r"is damaged, or was not made by experiments/release.py"):
        capsjax.restore(other)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        capsjax.restore(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="there is no step 1234"):
        capsjax.restore(released, 1234)
    config = json.loads(json.dumps(configs.to_json(checkpoint.config)))
    config["model"]["class_pose"] = 8
    about = {"config": config, "history": checkpoint.history.to_json(), "step": 7}
    changed = release.write(tmp_path / "changed.safetensors", checkpoint.model, about)
    with pytest.raises(ValueError, match="does not hold the variables of sabour2017_capsnet"):
        capsjax.restore(changed)


def changed(about, path, value):
    """A copy of `about` with another value at a dotted path; None removes it."""
    about = json.loads(json.dumps(about))
    *parents, last = path.split(".")
    owner = about
    for name in parents:
        owner = owner[name]
    if value is None:
        del owner[last]
    else:
        owner[last] = value
    return about


HOSTILE = [
    ("config", None, "config must be an object of JSON"),
    ("config", [1], "config must be an object of JSON, got [1]"),
    ("config.model", 3, "model must be an object"),
    ("config.model.name", 3, "model.name must be a string"),
    ("config.model.name", "__import__", "unknown model '__import__'"),
    ("config.model.width", "wide", "width must be a number"),
    ("config.model.widht", 1, "has no option 'widht'"),
    ("config.task", None, "task must be an object"),
    ("config.task.input_shape", [8, 8], "task.input_shape must be three positive integers"),
    ("config.task.input_shape", [8, 8, "1"], "each of config.task.input_shape must be an integer"),
    ("config.task.input_shape", [8, 8, -1], "task.input_shape must be three positive integers"),
    ("config.task.class_names", [1, 2], "each of config.task.class_names must be a string, got 1"),
    ("config.task.class_names", [], "task.class_names must be strings"),
    ("config.seed", "a", "seed must be an integer"),
    ("config.key_version", 99, "key_version must be from 1 to 2"),
    ("history", None, "history must be an object"),
    ("history.records", {}, "history.records must be a list"),
    ("history.records", [3], "each of history.records must be an object"),
    (
        "history.records",
        [{"split": "validation", "step": 7}],
        "each of history.records.epoch must be a number, got None",
    ),
    (
        "history.records",
        [{"split": "validation", "step": 7, "epoch": 1}],
        "accuracy of each validation must be a number, got None",
    ),
    ("step", "7", "step must be a number of steps, got '7'"),
    ("step", None, "step must be a number of steps, got None"),
]


@pytest.mark.parametrize(("path", "value", "message"), HOSTILE)
def test_odd_metadata_is_one_line_with_the_name_of_the_file(
    checkpoint, released, tmp_path, path, value, message
):
    _, config, history, step = release.read(released)
    about = {"config": configs.to_json(config), "history": history.to_json(), "step": step}
    file = tmp_path / "odd.safetensors"
    release.write(file, checkpoint.model, changed(about, path, value))
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        capsjax.restore(file)
    assert "\n" not in str(error.value)
    assert str(file) in str(error.value) or "unknown model" in message


@pytest.mark.parametrize("about", [[], None, 3, "a", {}])
def test_metadata_of_another_kind(checkpoint, tmp_path, about):
    file = tmp_path / "odd.safetensors"
    release.write(file, checkpoint.model, about)
    with pytest.raises(ValueError, match=r"odd\.safetensors: .* must be an object of JSON"):
        capsjax.restore(file)


def test_weights_that_are_not_finite(released, checkpoint, tmp_path):
    graphdef, state = nnx.split(checkpoint.model)
    state = jax.tree.map(lambda x: np.full(x.shape, np.nan, x.dtype), state)
    _, config, history, step = release.read(released)
    about = {"config": configs.to_json(config), "history": history.to_json(), "step": step}
    release.write(tmp_path / "nan.safetensors", nnx.merge(graphdef, state), about)
    with pytest.raises(ValueError, match=r"nan\.safetensors: .* numbers that are not finite"):
        capsjax.restore(tmp_path / "nan.safetensors")


def test_a_file_that_exists_is_not_said_to_be_missing(tmp_path):
    (tmp_path / "weights.bin").touch()
    with pytest.raises(ValueError, match=r"weights\.bin is a file: expected a work directory"):
        capsjax.restore(tmp_path / "weights.bin")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ValueError, match=r"folder\.safetensors is not a regular file"):
        capsjax.restore(tmp_path / "folder.safetensors")
