"""The script as a user runs it."""

import json
import re
import signal
import subprocess
import sys

import _cli
import _configs
import evaluate
import jax
import models as script_models
import predict
import pytest
import report
import train
from PIL import Image

from capsjax import models
from capsjax.data import load
from capsjax.training import config as configs
from tests.processes import start_training

TINY = ["--config.model.width=0.03125", "--config.training.epochs=2"]


def test_ctrl_c_saves_and_another_seed_is_refused(script, tmp_path):
    arguments = ["--config=configs/digits.py", f"--workdir={tmp_path / 'run'}", *TINY]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start_training(*arguments, "--config.training.epochs=500", **pipes)
    for line in process.stdout:
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.search(r"stopped by SIGINT; saved at step \d+", output)
    assert "Traceback" not in errors

    # Again with another seed is another run; with the same it would go on.
    refused = script("train.py", *arguments, "--config.seed=1")
    assert refused.returncode == 1
    assert "seed: 0 → 1" in refused.stderr


@pytest.mark.slow
def test_a_fixed_point_is_trained(script, tmp_path):
    arguments = ["--config=configs/digits.py", f"--workdir={tmp_path / 'run'}", *TINY]
    network = "--config.model.name=tsai2020_cifar10_simple", "--config.model.schedule=fixed_point"
    done = script("train.py", *arguments, *network)
    assert done.returncode == 0, done.stderr
    first, last = re.findall(r"epoch +\d+  step \d+/80  loss (\d\.\d{4})", done.stdout)
    assert float(last) < float(first)


def quick(npz, *arguments):
    _cli.run(train.parser(), train.main, [f"--config=tests/quick.py:{npz}", *arguments])


def test_a_finished_run_is_extended(npz, tmp_path, capsys):
    """To the bits of a run that was as long from the start."""
    workdir = f"--workdir={tmp_path / 'run'}"
    quick(npz, workdir, "--config.training.epochs=1")
    assert "step 7/7" in capsys.readouterr().out
    quick(npz, workdir, "--config.training.epochs=3")
    output = capsys.readouterr().out
    assert "resuming at step 7" in output
    assert "step 21/21" in output
    quick(npz, f"--workdir={tmp_path / 'whole'}", "--config.training.epochs=3")
    extended, whole = (tmp_path / name for name in ("run", "whole"))
    for file in ("config.json", "metrics.jsonl"):
        assert (extended / file).read_text() == (whole / file).read_text()
    with pytest.raises(SystemExit) as stop:
        quick(npz, workdir, "--config.training.epochs=2")
    assert "training.epochs is 2, but the run in" in str(stop.value.code)
    assert (extended / "config.json").read_text() == (whole / "config.json").read_text()


def test_few_pictures_are_shown_often_enough(tmp_path, npz, capsys, monkeypatch):
    """Twelve pictures in smaller batches and more epochs, unless numbers are given."""
    for i, pixels in enumerate(load(f"npz:{npz}", "test").images[:18, ..., 0]):
        (tmp_path / "mine" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "mine" / "ab"[i % 2] / f"{i}.png")

    def fitted(*options):
        argv = ["--config=configs/digits.py", f"--config.data.name=folder:{tmp_path / 'mine'}"]
        args = train.parser().parse_args([argv[0], f"--workdir={tmp_path}"])
        args.overrides = dict(
            option.removeprefix("--config.").split("=") for option in [argv[1], *options]
        )
        config = _cli.config_of(args)
        train.fit_length(config, args)
        return config.training.batch_size, config.training.epochs

    assert fitted() == (8, 400)
    said = capsys.readouterr().out
    assert "For so few pictures: 400 epochs in batches of 8;" in said
    assert "Each of the 2 pictures held out is 50% of the validation accuracy" in said
    assert fitted("--config.training.epochs=3") == (8, 3)
    assert fitted("--config.training.batch_size=4") == (4, 134)
    monkeypatch.setattr(train, "BATCHES_OF_FEW", 1)
    for devices in (1, 2, 4, 8):
        monkeypatch.setattr(jax, "device_count", lambda devices=devices: devices)
        assert fitted() == (8, 400)  # a run may go on elsewhere
    begun = {"training": {"batch_size": 16, "epochs": 3}, "optimizer": {}, "model": {}}
    (tmp_path / "config.json").write_text(json.dumps(begun))
    assert fitted() == (16, 3), "as it began"
    assert fitted("--config.training.epochs=5") == (16, 5)
    monkeypatch.setattr(train, "FEWEST_STEPS", 0)
    monkeypatch.setattr(train, "SMALLEST_BATCH", 4096)
    assert fitted() == (16, 3), "with as many pictures as the recipe is for"


def test_the_last_line_says_what_came_out_and_what_is_next(npz, tmp_path, capsys):
    quick(npz, f"--workdir={tmp_path / 'run'}", "--data_dir=here")
    last = capsys.readouterr().out.splitlines()[-1]
    run = re.escape(str(tmp_path / "run"))
    assert re.fullmatch(
        r"Validation accuracy \d+\.\d\d%; best \d+\.\d\d%, of epoch [12] of 2: "
        rf"{run}\. Next: python experiments/evaluate\.py --data_dir=here --checkpoint={run}",
        last,
    )


def test_several_seeds_are_named_on_every_line(npz, tmp_path, capsys):
    quick(npz, f"--workdir={tmp_path / 'run'}", "--config.seeds=2", "--config.seed=4")
    output = capsys.readouterr().out
    epochs = [line.partition("  step")[0] for line in output.splitlines() if "epoch " in line]
    assert epochs == [f"seed {seed}  epoch   {epoch}" for seed in (4, 5) for epoch in (1, 2)]
    assert output.splitlines()[-1] == (
        "Next: python experiments/evaluate.py --checkpoint "
        f"{tmp_path / 'run'}/seed_4 {tmp_path / 'run'}/seed_5"
    )


MINE = """
from dataclasses import dataclass
from flax import nnx
from capsjax import models

@dataclass(frozen=True)
class MineConfig:
    scale: float = 1.0

class Mine(models.Model):
    def __init__(self, input_shape, num_classes, config, *, rngs):
        self.input_shape = input_shape
        size = input_shape[0] * input_shape[1] * input_shape[2]
        self.classes = nnx.Linear(size, num_classes, rngs=rngs)

    def forward(self, images, *, mask, keys, capture):
        scores = self.classes(images.reshape(images.shape[0], -1))
        return models.Output(scores, score_kind=models.ScoreKind.LOGITS)

models.register("mine", Mine, MineConfig())
"""


def test_a_network_of_ones_own_works_in_every_script(npz, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    mine, run = f"--import={tmp_path / 'mine.py'}", tmp_path / "run"
    quick(npz, f"--workdir={run}", mine, "--config.model.name=mine")
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"{mine} --checkpoint={run}")
    digit = tmp_path / "digit.png"
    Image.fromarray(load(f"npz:{npz}", "test").images[0, ..., 0]).save(digit)
    for script, arguments in (
        (evaluate, [f"--checkpoint={run}"]),
        (predict, [f"--checkpoint={run}", str(digit), f"--export={tmp_path / 'net'}"]),
        (report, [str(run)]),
        (script_models, ["mine", "--input=8x8x1"]),
    ):
        models._REGISTERED.clear()
        with pytest.raises(SystemExit) as stop:
            _cli.run(script.parser(), script.main, arguments)
        said = f"{stop.value.code}{capsys.readouterr().err}"
        assert "unknown model 'mine'" in said
        assert "--import=FILE.py" in said
        _cli.run(script.parser(), script.main, [*arguments, mine])
    assert mine in (run / "report.html").read_text()


def test_help_says_how(capsys):
    with pytest.raises(SystemExit) as stop:
        _cli.run(train.parser(), train.main, ["--config=configs/digits.py", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "--workdir" in text
    assert "configs/sabour2017_mnist.py" in text
    described = configs.describe(_configs.read("digits"))
    assert "training.epochs=24 (positive)\n          passes over the training images." in text
    for name, option in described.items():
        assert f"  {name}={option.default}" in text
        assert option.allowed in text
        assert option.text in " ".join(text.split())
    other = ["--config=configs/digits.py", "--config.model.name=choi2019_mnist", "--help"]
    with pytest.raises(SystemExit):
        _cli.run(train.parser(), train.main, other)
    assert "  model.num_conv_caps=" in capsys.readouterr().out
