import json
import re

import _cli
import _scoring
import evaluate
import numpy as np
import predict
import pytest
import release
import report
from PIL import Image

from capsjax.runs import checkpoints
from tests.processes import ROOT

CARDS = sorted(ROOT.glob("releases/*.md"))


def test_a_release_and_its_card(tiny_run, tmp_path, capsys):
    file = tmp_path / "new" / "tiny.safetensors"
    command = [f"--checkpoint={tiny_run}", f"--output={file}", "--licence=CC0-1.0"]
    _cli.run(release.parser(), release.main, command)
    assert f"Written to {file}" in capsys.readouterr().out
    card = file.with_suffix(".md").read_text()
    checkpoint = checkpoints.read(tiny_run)
    assert "| 8×8×1, uint8 |" in card
    assert "11,016 parameters" in card
    assert f"| {checkpoint.step:,} steps, seed 0 |" in card
    assert "| CC0-1.0 |" in card
    recipe = json.loads(card.split("```json")[1].split("```")[0])
    assert recipe["model"] == checkpoint.config.model.to_dict() | {
        key: list(value)
        for key, value in checkpoint.config.model.items()
        if isinstance(value, tuple)
    }
    image = tmp_path / "image.png"
    Image.new("L", (8, 8)).save(image)
    _cli.run(predict.parser(), predict.main, [f"--checkpoint={file}", str(image)])
    assert "image.png" in capsys.readouterr().out
    # What is made of it lies beside it.
    _cli.run(evaluate.parser(), evaluate.main, [f"--checkpoint={file}"])
    (written,) = file.parent.glob(f"{file.stem}.evaluation_*.json")
    assert json.loads(written.read_text())["accuracy"] > 0
    _cli.run(report.parser(), report.main, [str(file)])
    assert "--workdir=runs/tiny" in (file.parent / f"{file.stem}.report.html").read_text()


def test_without_its_decoder(tiny_run, tmp_path):
    file = tmp_path / "tiny.safetensors"
    command = [f"--checkpoint={tiny_run}", f"--output={file}", "--without_decoder", "--quiet"]
    _cli.run(release.parser(), release.main, command)
    whole, bare = checkpoints.read(tiny_run).model, checkpoints.read(file).model
    images = np.zeros((2, 8, 8, 1), np.uint8)
    assert bare(images).reconstruction is None
    np.testing.assert_array_equal(bare(images).scores, whole(images).scores)
    card = file.with_suffix(".md").read_text()
    assert "a decoder that is left out here" in card
    assert '"reconstruction": "none"' not in card


def test_nothing_is_overwritten(tiny_run, tmp_path, fails, monkeypatch):
    (tmp_path / "a.md").write_text("mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    for file in (tmp_path / "a.safetensors", "~/a.safetensors"):
        arguments = (f"--checkpoint={tiny_run}", f"--output={file}")
        assert "a.md is there already" in fails(release, *arguments)
    assert (tmp_path / "a.md").read_text() == "mine"


def of_digits(card):
    return "trained with capsjax on `digits`" in card.read_text()


@pytest.mark.parametrize(
    "card",
    [pytest.param(c, id=c.stem, marks=[] if of_digits(c) else pytest.mark.slow) for c in CARDS],
)
def test_released_networks_are_as_good_as_their_cards_say(card, request):
    """Files in the repository."""
    file = card.with_suffix(".safetensors")
    assert file.stat().st_size <= 5e6
    if not of_digits(card):
        request.getfixturevalue("real_mnist_dir")
    args = release.parser().parse_args([f"--checkpoint={file}", "--output=new.safetensors"])
    checkpoint = checkpoints.read(file)
    _, _, summary = _scoring.score(checkpoint, args)
    accuracy = 100 * summary.accuracy
    (said,) = re.findall(r"accuracy \| ([\d.]+) %", card.read_text())
    assert float(said) == pytest.approx(accuracy, abs=0.3), "the same but for rounding"
