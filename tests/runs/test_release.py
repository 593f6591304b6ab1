import functools
import http.server
import threading

import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

import capsjax
from capsjax.runs import checkpoints, release
from capsjax.training import config as configs
from tests.tiny import differences


@pytest.fixture(scope="module")
def checkpoint(tiny_run):
    return checkpoints.read(tiny_run)


@pytest.fixture
def about(checkpoint):
    """What a released file says about itself."""
    return {
        "config": configs.to_json(checkpoint.config),
        "history": checkpoint.history.to_json(),
        "step": checkpoint.step,
    }


@pytest.fixture
def released(checkpoint, about, tmp_path):
    return release.write(tmp_path / "folder" / "tiny.safetensors", checkpoint.model, about)


def same(model, other):
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), np.uint8)
    np.testing.assert_array_equal(model(images).scores, other(images).scores)


def test_a_file_holds_what_a_checkpoint_does(released, checkpoint):
    found = checkpoints.read(released)
    same(found.model, checkpoint.model)
    assert differences(found.config, checkpoint.config) == []
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
        with pytest.raises(OSError, match=r"none.safetensors cannot be read: HTTP Error 404"):
            capsjax.restore(f"{address}/none.safetensors")
        server.shutdown()


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


@pytest.mark.parametrize("keep", [0, 100, -1, None])
def test_a_file_that_was_cut_or_is_of_others(released, keep):
    contents = safetensors.numpy.save({"x": np.zeros(3)})
    released.write_bytes(contents if keep is None else released.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"is damaged, or not a released network"):
        capsjax.restore(released)


def test_what_is_not_in_it(released):
    with pytest.raises(ValueError, match="there is no step 1234"):
        capsjax.restore(released, 1234)


def test_variables_of_another_network(about, checkpoint, tmp_path):
    about["config"]["model"]["class_pose"] = 8
    changed = release.write(tmp_path / "changed.safetensors", checkpoint.model, about)
    with pytest.raises(ValueError, match="does not hold the variables of sabour2017_capsnet"):
        capsjax.restore(changed)


def test_a_description_that_is_none(checkpoint, tmp_path):
    file = release.write(tmp_path / "odd.safetensors", checkpoint.model, {"config": 3})
    with pytest.raises(ValueError, match=r"odd\.safetensors does not hold what capsjax writes"):
        capsjax.restore(file)
