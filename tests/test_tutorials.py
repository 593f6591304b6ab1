"""What the tutorials show runs: Python in one piece, commands or at least their arguments."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests import pages
from tests.processes import ROOT
from tests.test_package import required

PAGES = {file.stem: file.read_text() for file in sorted((ROOT / "docs/tutorials").glob("*.md"))}
NOTEBOOK = "{code-cell} python"


def run_page(name: str, language: str, changes: dict[str, str]) -> dict:
    """Runs all Python of a page, with some text in it changed; returns what it defined."""
    cells = pages.blocks(PAGES[name], language)
    code = "".join(re.sub(r"^---\n.*?^---\n", "", cell, flags=re.S | re.M) for cell in cells)
    for old, new in changes.items():
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    namespace = {"__name__": name}
    exec(code, namespace)
    return namespace


def test_first_page():
    """Its code and commands are the README's, which test_readme.py runs."""
    first, readme = (ROOT / name for name in ("docs/index.md", "README.md"))
    first, readme = first.read_text(), readme.read_text()
    (python,) = pages.blocks(first, "python")
    assert python in pages.blocks(readme, "python")
    assert pages.commands(first)
    assert all(words in pages.commands(readme) for words in pages.commands(first))


def test_capsules():
    """The votes for the true class agree, those for the others do not."""
    shown = run_page("capsules", NOTEBOOK, {})
    agreement = shown["agreement"]
    assert agreement.argmax() == 3
    assert agreement[3] > 2 * np.delete(agreement, 3).max()
    assert shown["right"].mean() > 0.95
    assert shown["moved"].shape == (16, 11, 28, 28, 1)


@pytest.mark.slow
def test_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run_page("images", NOTEBOOK, {})
    assert shown["result"].accuracy > 0.95
    assert shown["moved"].shape == (16, 11, 20, 20, 1)
    assert shown["scores"].argmax() == 7


@pytest.mark.parametrize(
    "changes", [{"steps=200": "steps=2"}, pytest.param({}, marks=pytest.mark.slow)]
)
def test_own_model(changes, capsys):
    shown = run_page("own_model", NOTEBOOK, changes)
    for poses in ("poses", "routed"):
        assert getattr(shown[poses], "poses", shown[poses]).shape == (297, 10, 16)
    said = capsys.readouterr().out
    found = re.findall(r"^(plain JAX|Flax NNX|Equinox): ([\d.]+)%", said, re.MULTILINE)
    assert len(found) == 3
    assert changes or all(float(accuracy) > 93 for _, accuracy in found), said


def test_procedure():
    """The page itself has the assertions."""
    assert "clustering_routing" in run_page("procedure", "python", {})


@pytest.mark.parametrize(
    "changes", [{"STEPS = 1500": "STEPS = 2"}, pytest.param({}, marks=pytest.mark.slow)]
)
def test_slots(changes):
    shown = run_page("slots", "python", changes)
    assert shown["shares"].shape == (100, 4, 49, 25)
    assert abs(shown["index"]) < 0.9 if changes else shown["index"] > 0.6


def calls() -> list:
    found = [words for page in PAGES.values() for words in pages.scripts(page)]
    assert len(found) > 12
    # Variables have some value; addresses of buckets take a package.
    return [[re.sub(r"\$\w+|gs://", "0", word) for word in words] for words in found]


@pytest.mark.parametrize("words", calls(), ids=" ".join)
def test_arguments(words, tmp_path, monkeypatch):
    for folder in ("configs", "experiments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    network = pages.blocks((ROOT / "docs/models.md").read_text(), "python")[-1]
    Path("mine.py").write_text(network.partition("run = config")[0])
    pages.check_arguments(words)


@pytest.mark.parametrize("name", PAGES)
def test_shell(name):
    """Bash takes it, and extras of capsjax exist."""
    for code in pages.blocks(PAGES[name], "sh") + pages.blocks(PAGES[name], "bash"):
        subprocess.run(["bash", "-n", "-c", code], check=True)
    named = re.findall(r"(?:\.|/capsjax)\[([\w,]+)\]", PAGES[name])
    assert {extra for extras in named for extra in extras.split(",")} <= required().keys()


def test_manifest():
    """The Job starts as many processes as each of them expects, under the Service's names."""
    (text,) = pages.blocks(PAGES["cluster"], "yaml")
    service, job = yaml.safe_load_all(text)
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    call = container["command"][-1].partition("python ")[2].split()
    pages.check_arguments([word.replace("$JOB_COMPLETION_INDEX", "0") for word in call])
    options = dict(word.split("=") for word in call[1:])
    name = service["metadata"]["name"]
    assert name == spec["template"]["spec"]["subdomain"]
    assert options["--coordinator_address"].startswith(f"{job['metadata']['name']}-0.{name}:")
    assert int(options["--num_processes"]) == spec["completions"] == spec["parallelism"]
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.slow
def test_rehearsal(tmp_path):
    """Two processes as hosts, as the page about pods has it; the network is narrower."""
    (code,) = [code for code in pages.blocks(PAGES["tpu_pod"], "sh") if "127.0.0.1" in code]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        code = code.replace("12345", str(free.getsockname()[1]))
    code = code.replace("epochs=2", "epochs=1 --config.model.width=0.03125")
    for folder in ("configs", "experiments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "",
        "JAX_PLATFORMS": "cpu",
    }
    ended = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.stdout.count("Validation accuracy") == 1, ended.stdout + ended.stderr
    assert list((tmp_path / "runs/rehearsal/checkpoints").iterdir())
