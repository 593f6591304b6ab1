"""Slots from training to the report."""

import json

import _configs
import evaluate
import pytest
import report

from capsjax.runs.loop import train


def test_trains_evaluates_and_shows(tmp_path, capsys):
    config = _configs.read("slots")
    config.model.update({"features": 8, "num_layers": 1, "slot_size": 8, "mlp_size": 8})
    config.data.update({"repeats": 4, "test_images": 8})
    config.training.update({"epochs": 1, "batch_size": 24})
    run = tmp_path / "run"
    history = train(config, run).history
    assert 0 < history.epoch_means(1)["reconstruction"] < 1  # a mean over pixels
    evaluate.main(evaluate.parser().parse_args([f"--checkpoint={run}"]))
    shown = json.loads((run / "evaluation_tetrominoes_test.json").read_text())
    assert -1 <= shown["foreground_ari"] < 0.9
    said = f"Adjusted Rand index of the foreground: {shown['foreground_ari']:.3f}"
    assert said in capsys.readouterr().out
    report.main(report.parser().parse_args([str(run)]))
    html = (run / "report.html").read_text()
    assert f"{said}, the mean of 8 images" in html
    assert "the parts of 4 slots" in html
    with pytest.raises(ValueError, match="--poses moves"):
        report.main(report.parser().parse_args([str(run), "--poses=x.png"]))
