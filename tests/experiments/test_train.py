"""The script as a user runs it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = ["--config.model.width=0.03125", "--config.training.epochs=2"]


def command(*arguments):
    return [sys.executable, "experiments/train.py", *arguments]


def run(*arguments):
    environment = os.environ | {"XLA_FLAGS": ""}
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=environment, text=True, capture_output=True, check=False
    )


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    arguments = ["--config=configs/digits.py", f"--workdir={tmp_path / 'run'}", *TINY]
    process = subprocess.Popen(
        command(*arguments, "--config.training.epochs=500"),
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": "", "PYTHONUNBUFFERED": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for line in process.stdout:
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.search(r"stopped by SIGINT; saved at step \d+", output)
    assert "Traceback" not in errors

    # Again with other epochs is another run; with the same it would go on.
    refused = run(*arguments)
    assert refused.returncode == 1
    assert "training.epochs: 500 → 2" in refused.stderr


@pytest.mark.slow
def test_plain_lines_where_there_is_no_terminal(tmp_path):
    started = time.monotonic()
    done = run("--config=configs/digits.py", f"--workdir={tmp_path / 'run'}", *TINY)
    assert done.returncode == 0, done.stderr
    assert re.search(r"epoch   2  step 80/80  loss 0\.\d{4}  accuracy", done.stdout)
    assert "\x1b" not in done.stdout
    assert not done.stderr.strip(), "warnings on the first run"
    again = run("--config=configs/digits.py", f"--workdir={tmp_path / 'run'}", *TINY)
    assert "finished before, at step 80" in again.stdout
    assert time.monotonic() - started < 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.training.epoch=3"], 'Did you mean "epochs"'),
        (["--config.trainin.epochs=3"], 'Did you mean "training"'),
        (["--config.data.name=mnits"], "mnist"),
        (["--config.training.batch_size=0"], "batch_size must be a positive multiple"),
        (["surplus"], "unexpected arguments: surplus"),
    ],
)
def test_user_mistakes_are_one_message(tmp_path, arguments, message):
    done = run("--config=configs/digits.py", f"--workdir={tmp_path / 'run'}", *arguments)
    assert done.returncode == 1
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_help_says_how():
    done = run("--help")
    assert "--workdir" in done.stdout
    assert "configs/sabour2017_mnist.py" in done.stdout
