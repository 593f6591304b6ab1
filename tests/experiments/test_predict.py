import re
import subprocess
import sys

import numpy as np
import predict
import pytest
from PIL import Image

from capsjax import restore
from capsjax.data import load


@pytest.fixture
def image(npz, tmp_path):
    """The first test image as a file."""
    path = tmp_path / "digit.png"
    Image.fromarray(load(f"npz:{npz}", "test").images[0, ..., 0]).save(path)
    return path


def run(*arguments):
    predict.main(predict.parser().parse_args([str(a) for a in arguments]))


def test_as_a_user_runs_it(script, finished_run, npz, image):
    done = script("predict.py", f"--checkpoint={finished_run}", "--image", image, "--top=10")
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    assert f"{image} (as it is)" in done.stdout
    shown = {c: float(s) for c, s in re.findall(r"│ (\d) +│ (0\.\d{3}) │", done.stdout)}
    model, _ = restore(finished_run)
    expected = np.asarray(model(load(f"npz:{npz}", "test").images[:1]).scores[0])
    np.testing.assert_allclose([shown[str(k)] for k in range(10)], expected, atol=6e-4)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)


def test_several_files_and_what_was_done_to_them(finished_run, image, tmp_path, capsys):
    photo = tmp_path / "photo.jpg"
    Image.new("RGB", (40, 20), "white").save(photo)
    run(f"--checkpoint={finished_run}", "--image", image, photo, "--invert")
    output = capsys.readouterr().out
    assert f"{image} (inverted)" in output
    assert "(made grey, inverted, 40×20 scaled to 8×4, padded to 8×8)" in output


def test_fit_leaves_what_fits_alone():
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    fitted, steps = predict.fit(image, (4, 4, 3), invert=False)
    np.testing.assert_array_equal(fitted, image)
    assert steps == "as it is"


def test_fit_keeps_proportions_and_pads_with_black():
    fitted, steps = predict.fit(np.full((2, 4, 1), 200, np.uint8), (8, 8, 3), invert=False)
    np.testing.assert_array_equal(fitted[2:6], 200)
    np.testing.assert_array_equal(fitted[[0, 1, 6, 7]], 0)
    assert steps == "made RGB, 4×2 scaled to 8×4, padded to 8×8"


def test_fit_inverts_before_it_pads():
    fitted, _ = predict.fit(np.full((4, 2, 1), 255, np.uint8), (4, 4, 1), invert=True)
    np.testing.assert_array_equal(fitted, 0)


def test_fit_refuses_other_channels():
    with pytest.raises(ValueError, match="images of 2 channels"):
        predict.fit(np.zeros((4, 4, 1), np.uint8), (4, 4, 2), invert=False)


RUN_EXPORTED = """
import sys
import jax, numpy as np
with open(sys.argv[1], "rb") as file:
    network = jax.export.deserialize(bytearray(file.read()))
assert network.platforms == ("cpu", "cuda", "tpu")
images = np.load(sys.argv[2])
one = network.call(images[:1])
np.save(sys.argv[3], network.call(images))
assert one.shape == (1, 10)
assert not any(name.partition(".")[0] in ("capsjax", "flax") for name in sys.modules)
"""


def test_the_exported_network_needs_jax_alone(finished_run, npz, tmp_path):
    exported, images, scores = (tmp_path / name for name in ("net", "images.npy", "scores.npy"))
    run(f"--checkpoint={finished_run}", f"--export={exported}")
    np.save(images, load(f"npz:{npz}", "test").images)
    subprocess.run(
        [sys.executable, "-c", RUN_EXPORTED, exported, images, scores], check=True, cwd=tmp_path
    )
    model, _ = restore(finished_run)
    np.testing.assert_allclose(np.load(scores), model(np.load(images)).scores, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: nothing to do"),
        (["--image=missing.png"], "error: missing.png: No such file"),
        (["--image", __file__], "not an image"),
        (["--image=x.png", "--top=0"], "--top must be at least 1"),
        (["--export=/dev/null/net"], "error: /dev/null: "),
    ],
)
def test_user_mistakes_are_one_line(fails, finished_run, arguments, message):
    assert message in fails(predict, f"--checkpoint={finished_run}", *arguments)


def test_no_checkpoint(fails, tmp_path):
    message = fails(predict, f"--checkpoint={tmp_path / 'none'}", "--export=net")
    assert "does not exist" in message
