"""The README's snippets run as they stand, and what it shows is up to date."""

import importlib
import re
import subprocess
from pathlib import Path

import _cli
import jax
import numpy as np
import pytest
from PIL import Image

from capsjax.runs import loop
from capsjax.training import config as configs
from tests import pages
from tests.processes import ROOT
from tests.test_package import required

README = (ROOT / "README.md").read_text()
# Too long, or needs what is not here: only their arguments are tried.
LONG = (
    "reproduce.py gu2021/table2 --scale=small",
    "compile.py",
    "configs/sabour2017_mnist.py",
    "report.py --results",
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A directory with a run of the demo's data in runs/demo.

    The network is narrower and was trained for one epoch, of fewer images.
    """
    directory = tmp_path_factory.mktemp("readme")
    config = configs.default("sabour2017_capsnet", "digits")
    config.model.width = 1 / 32
    config.training.epochs = 1
    config.data.train_fraction = 0.1
    loop.train(config, directory / "runs/demo", devices=jax.devices()[:1])
    for name in ("experiments", "configs", "docs", "releases"):
        (directory / name).symlink_to(ROOT / name)
    return directory


def test_python(elsewhere, monkeypatch):
    monkeypatch.chdir(elsewhere)
    restore, routing = pages.blocks(README, "python")
    namespace = {}
    exec(restore, namespace)
    assert namespace["scores"].shape == (359, 10)
    exec(routing, namespace)
    assert namespace["routed"].poses.shape == (32, 10, 16)
    assert namespace["routed"].coupling.shape == (32, 1152, 10)


def is_long(words: list[str]) -> bool:
    return any(part in " ".join(words) for part in LONG)


@pytest.mark.parametrize("words", pages.scripts(README), ids=" ".join)
def test_arguments(words):
    pages.check_arguments(words)


def marks(words):
    """Training is slow, and so is what needs its run; an export is for batches of any size."""
    if "train.py" in words[0] or "runs/samples" in words:
        return [pytest.mark.slow]
    return [pytest.mark.symbolic_sizes] if "--export" in " ".join(words) else []


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(w, marks=marks(w), id=" ".join(w))
        for w in pages.scripts(README)
        if not is_long(w)
    ],
)
def test_commands(elsewhere, monkeypatch, words):
    """Each is run, in this process; training is narrower and of one epoch."""
    monkeypatch.chdir(elsewhere)
    script, *arguments = words
    if "train.py" in script:
        arguments += ["--config.model.width=0.03125", "--config.training.epochs=1"]
    module = importlib.import_module(Path(script).stem)
    _cli.run(module.parser(), module.main, arguments)
    for file in re.findall(r"--(?:out|output|export)=(\S+)", " ".join(words)):
        assert (elsewhere / file).stat().st_size


def test_other_commands():
    """`make` has the targets, and setup.cfg the extras."""
    seen = set()
    for program, *words in pages.commands(README):
        seen.add(program)
        if program == "make":
            subprocess.run(["make", "--dry-run", *words], cwd=ROOT, check=True, capture_output=True)
        elif program == "pip":
            install, *editable, what = words
            assert install == "install"
            assert editable in ([], ["--editable"])
            extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", what)[1]
            assert set(extras.split(",") if extras else ()) <= required().keys()
    assert seen == {"make", "pip", "python"}


def test_the_picture_is_what_the_command_draws(tmp_path):
    """The released network is the demo's."""
    import report

    assert "report.py runs/demo --poses=docs/poses.png" in README
    network = str(ROOT / "releases" / "digits_capsnet.safetensors")
    _cli.run(report.parser(), report.main, [network, f"--poses={tmp_path / 'poses.png'}"])
    ours = np.asarray(Image.open(tmp_path / "poses.png"), np.float32)
    there = np.asarray(Image.open(ROOT / "docs/poses.png"), np.float32)
    assert ours.shape == there.shape
    assert abs(ours - there).mean() < 2
