"""The scripts, imported and as a user runs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.processes import ROOT


@pytest.fixture(autouse=True)
def settings_of_jax():
    """What a script's `main` sets in this process ends with its test: it changes later bits."""
    names = ("jax_disable_most_optimizations", "jax_compilation_cache_dir")
    before = {name: jax.config.values[name] for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def finished_run(tiny_run, tmp_path):
    """A copy of the tiny run, for scripts that write into a run's directory."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def script():
    """Runs `python experiments/NAME ARGUMENTS` with one device."""

    def run(name, *arguments):
        return subprocess.run(
            [sys.executable, f"experiments/{name}", *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | {"XLA_FLAGS": ""},
            text=True,
            capture_output=True,
            check=False,
        )

    return run


@pytest.fixture
def fails(capsys):
    """Runs a script's `main` in this process and gives the message of the error it ends with."""

    def run(module, *arguments):
        import _cli

        with pytest.raises(SystemExit) as stop:
            _cli.run(module.parser(), module.main, [str(a) for a in arguments])
        assert stop.value.code not in (0, None)
        return f"{stop.value.code}\n{capsys.readouterr().err}"

    return run


@pytest.fixture(scope="session")
def results(tiny_run, npz):
    """The tiny run's answers to the images of its test split."""
    import numpy as np
    from _report.results import Results
    from flax import nnx

    from capsjax.data import load
    from capsjax.evaluation import summaries
    from capsjax.runs import checkpoints

    checkpoint = checkpoints.read(tiny_run)
    dataset = load(f"npz:{npz}", "test")
    score = nnx.jit(lambda model, images: model(images).scores)
    scores = np.asarray(score(checkpoint.model, dataset.images))
    summary = summaries.summarize(scores, dataset.labels)
    return Results("runs/a0", checkpoint, checkpoint.history, dataset, scores, summary)
