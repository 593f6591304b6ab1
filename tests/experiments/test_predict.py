import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import _ink
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
    done = script("predict.py", f"--checkpoint={finished_run}", image, "--top=10")
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    assert f"{image} (as it is)" in done.stdout
    shown = {c: float(s) for c, s in re.findall(r"│ (\d) +│ (0\.\d{3}) │", done.stdout)}
    model, _ = restore(finished_run)
    expected = np.asarray(model(load(f"npz:{npz}", "test").images[:1]).scores[0])
    np.testing.assert_allclose([shown[str(k)] for k in range(10)], expected, atol=6e-4)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)


def test_what_was_done_to_files(finished_run, image, tmp_path, capsys):
    photo = tmp_path / "photo.jpg"
    Image.new("RGB", (40, 20), "white").save(photo)
    run(f"--checkpoint={finished_run}", image, photo, "--invert")
    output = capsys.readouterr().out
    assert f"{image} (inverted)" in output
    assert "(made grey, inverted, 40×20 scaled to 8×4, padded to 8×8)" in output


@pytest.fixture
def scans(npz, tmp_path):
    """A folder of eight test images, two of them inverted, and a broken one below."""
    folder = tmp_path / "scans"
    (folder / "below").mkdir(parents=True)
    for i, pixels in enumerate(load(f"npz:{npz}", "test").images[:8, ..., 0]):
        Image.fromarray(255 - pixels if i in (2, 5) else pixels).save(folder / f"{i}.png")
    (folder / "below/broken.png").write_text("no image")
    (folder / "notes.txt").write_text("no image")
    (folder / "._0.png").write_text("what a Mac leaves")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints/0-checkpoint.png").write_text("what Jupyter leaves")
    return folder


def classify(tmp_path, finished_run, *arguments):
    """The results as JSON, and the status it ended with."""
    file = tmp_path / "new/results.json"
    try:
        run(f"--checkpoint={finished_run}", f"--output={file}", *arguments)
        status = 0
    except SystemExit as stop:
        status = stop.code
    return json.loads(file.read_text()), status


def test_folders_and_patterns_past_broken_files(finished_run, scans, npz, tmp_path, capsys):
    results, status = classify(tmp_path, finished_run, scans)
    assert status == 1
    output = capsys.readouterr()
    assert "1 could not be read:\n  " in output.err
    assert f"{scans}/below/broken.png: not an image" in output.err
    assert [image["file"] for image in results["images"]] == [
        str(scans / f"{i}.png") for i in range(8)
    ]
    assert list(results["not_read"]) == [f"{scans}/below/broken.png"]
    model, config = restore(finished_run)
    images = load(f"npz:{npz}", "test").images[:8].copy()
    images[[2, 5]] = 255 - images[[2, 5]]
    scores = [list(image["scores"].values()) for image in results["images"]]
    expected = np.asarray(model(images).scores)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert [image["class"] for image in results["images"]] == [
        config.task.class_names[k] for k in expected.argmax(-1)
    ]
    assert output.out.count("scans/") >= 8

    by_pattern, status = classify(tmp_path, finished_run, scans / "*[0-3].png", scans / "1.png")
    assert status == 0
    for found, before in zip(by_pattern["images"], results["images"][:4], strict=True):
        # A batch of another size is another program.
        assert found.pop("scores") == pytest.approx(before.pop("scores"), abs=1e-5)
        assert found == before
    _, status = classify(tmp_path, finished_run, scans / "0.png", scans / "*.gif")
    assert status == 1
    assert "*.gif: no such file" in capsys.readouterr().err


def test_what_looks_inverted_is_said(finished_run, scans, tmp_path, capsys, monkeypatch):
    """A light edge, and the negative has the higher score."""
    monkeypatch.setattr(predict, "_answer", dark_network)
    results, _ = classify(tmp_path, finished_run, scans)
    assert [i for i, x in enumerate(results["images"]) if x["looks_inverted"]] == [2, 5]
    assert f"{scans}/2.png, {scans}/5.png. Try --invert, or --crop" in capsys.readouterr().out
    results, _ = classify(tmp_path, finished_run, scans, "--invert")
    assert "Leave --invert out." in capsys.readouterr().out
    assert not any(x["looks_inverted"] for i, x in enumerate(results["images"]) if i in (2, 5))


def dark_network(model, images):
    """Scores higher the darker an image is."""
    darkness = 1 - images.mean((1, 2, 3), keepdims=True).reshape(-1, 1) / 255
    return darkness * np.linspace(0.1, 1, 10)


def test_csv_and_a_page(finished_run, scans, tmp_path):
    for name in ("results.csv", "results.html"):
        with pytest.raises(SystemExit):
            run(f"--checkpoint={finished_run}", f"--output={tmp_path / name}", scans)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [Path(row["file"]).name for row in rows] == [f"{i}.png" for i in range(8)] + [
        "broken.png"
    ]
    assert "not an image" in rows[-1]["error"]
    assert float(rows[0][rows[0]["class"]]) == max(float(rows[0][str(k)]) for k in range(10))
    page = (tmp_path / "results.html").read_text()
    assert page.count('<img src="data:image/') == 8
    assert "7.png" in page
    assert "broken.png: not an image" in page
    assert "<script" not in page


def test_links_that_loop_and_names_that_are_not_utf8(finished_run, image, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "again").symlink_to(folder)
    shutil.copy(image, folder / "a\udcff.png")
    results, _ = classify(tmp_path, finished_run, folder / "**/*.png")
    assert [Path(x["file"]).name for x in results["images"]] == ["a\udcff.png"]
    for file in (tmp_path / "results.csv", tmp_path / "results.html"):
        run(f"--checkpoint={finished_run}", f"--output={file}", folder)
        assert r"a\udcff.png" in file.read_text()


def test_photographs_are_cropped(script):
    """The shipped ones: ink on paper and chalk on a board, with margins, under uneven light."""
    network, photos = "--checkpoint=releases/digits_capsnet.safetensors", "docs/photos"
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    right = {f"{photos}/{name}.jpg: {number} 0" for number, name in enumerate(names)}
    done = script("predict.py", network, photos, "--top=1", "--crop")
    assert {line.partition(".jpg")[0] for line in done.stdout.splitlines()} == {
        f"{photos}/{name}" for name in names
    }, done.stderr
    # The eight is taken for a nine.
    assert sum(line.startswith(tuple(right)) for line in done.stdout.splitlines()) >= 9
    mnist = "--checkpoint=releases/mnist_efficient_capsnet.safetensors"
    done = script("predict.py", mnist, photos, "--top=1", "--crop", "--margin=0.14")
    assert sum(line.startswith(tuple(right)) for line in done.stdout.splitlines()) == 10
    done = script("predict.py", network, photos, "--top=1")
    assert sum(line.startswith(tuple(right)) for line in done.stdout.splitlines()) < 5


@pytest.mark.parametrize("light", [True, False])
def test_ink_stands_as_in_the_training_images(light):
    page = np.full((80, 120, 1), 200, np.uint8)
    page[20:60, 70:90] = 40
    drawn, done = _ink.cropped(page, _ink.Ink(0.5, light), (28, 28))
    expected = np.zeros((28, 28, 1))
    expected[7:21, 10:18] = 255  # 40 of 80 rows, and half as many columns
    expected = expected if light else 255 - expected
    assert np.abs(drawn - expected).mean() < 15
    assert done == ["cropped to the ink of 20×40", "inverted"][: 1 + light]
    large = np.zeros((2 * _ink.WORKING_SIDE,) * 2 + (1,), np.uint8)
    large[100:260, 40:120] = 255
    assert _ink.cropped(large, _ink.Ink(0.5), (28, 28))[1] == ["cropped to the ink of 80×160"]
    blank, _ = _ink.cropped(np.full((9, 9, 1), 7, np.uint8), _ink.Ink(0.5), (28, 28))
    assert not blank.any()


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


@pytest.mark.symbolic_sizes
def test_the_exported_network_needs_jax_alone(finished_run, npz, tmp_path):
    exported, images, scores = (tmp_path / name for name in ("net", "images.npy", "scores.npy"))
    run(f"--checkpoint={finished_run}", f"--export={exported}")
    np.save(images, load(f"npz:{npz}", "test").images)
    subprocess.run(
        [sys.executable, "-c", RUN_EXPORTED, exported, images, scores], check=True, cwd=tmp_path
    )
    model, _ = restore(finished_run)
    np.testing.assert_allclose(np.load(scores), model(np.load(images)).scores, atol=1e-5)
