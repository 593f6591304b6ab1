"""The package as a whole: what it imports, and what its wheel holds."""

import ast
import os
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest

import capsjax
from capsjax._version import REPOSITORY

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "capsjax"

# What each room may import of the others (docs/architecture.md).
MAY_IMPORT = {
    "__main__": "_names",
    "_cache": "",
    "_extras": "",
    "_files": "_extras",
    "_lazy": "",
    "_names": "",
    "_options": "_names",
    "_version": "",
    "functional": "",
    "losses": "functional",
    "routing": "functional",
    "layers": "functional routing",
    "models": "_names _options functional routing layers",
    "data": "_cache _extras _files _lazy _names _options functional",
    "training": "_cache _extras _files _lazy _names _options functional losses models data",
    "evaluation": "_extras _lazy _names functional routing layers models data training",
    "runs": "_cache _extras _files _lazy _names _options _version functional "
    "routing models data training evaluation",
}


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(
    "file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT))
)
def test_imports_run_one_way(file):
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    used = {name.split(".")[1] for name in imports(file) if name.startswith("capsjax.")}
    assert used <= {room, *MAY_IMPORT[room].split()}


def test_routing_can_be_lifted_into_other_code():
    allowed = {"jax", "chex", "jaxtyping", "numpy", "capsjax"}
    for file in (PACKAGE / "routing").rglob("*.py"):
        outside = {name.split(".")[0] for name in imports(file)} - set(sys.stdlib_module_names)
        assert outside <= allowed, file


def test_import_is_light():
    heavy = ["tensorflow_datasets", "tensorflow", "matplotlib", "sklearn", "scipy"]
    heavy += ["PIL", "orbax", "flax"]
    program = f"import sys, capsjax.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_modules_are_there_without_an_import_of_their_own():
    names = "capsjax.training.config", "capsjax.data.tasks.create", "capsjax.evaluation.entropy"
    program = f"import capsjax; print({', '.join(names)})"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    for room in (capsjax, capsjax.training, capsjax.data, capsjax.evaluation):
        with pytest.raises(AttributeError, match="no attribute 'looop'"):
            _ = room.looop


def test_dir_lists_everything():
    assert set(capsjax.__all__) <= set(dir(capsjax))


def test_changelog_knows_the_version():
    assert f"## {capsjax.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {capsjax.__version__}" in citation
    assert f"repository-code: {REPOSITORY}" in citation


def test_the_wheel_works_outside_the_clone(tmp_path, tiny_run):
    """Built, installed without its dependencies (this environment's are used), and used."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False, system_site_packages=False)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, wheel],
        check=True,
        capture_output=True,
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # The dependencies by path, but not the editable install of the clone.
    beginning = f"import sys; sys.path += {[p for p in sys.path if p.endswith('site-packages')]}\n"

    def run(program, *arguments):
        return subprocess.run(
            [python, "-c", beginning + program, *arguments],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )

    done = run(f"""
import jax.numpy as jnp
import capsjax
assert capsjax.__file__.startswith({str(site)!r}), capsjax.__file__
assert capsjax.__version__ == {capsjax.__version__!r}
routed = capsjax.routing.dynamic_routing(jnp.ones((4, 3, 2)))
assert routed.poses.shape == (3, 2)
model, config = capsjax.restore({str(tiny_run)!r})
scores = model(jnp.zeros((2, *config.task.input_shape))).scores
assert scores.shape == (2, 10)
print("works")
""")
    assert done.stdout.strip() == "works", done.stderr
    assert not done.stderr.strip(), "restore is silent"

    command = partial(run, "sys.argv[0] = 'capsjax'\nfrom capsjax.__main__ import main\nmain()")
    assert "\n  evaluate " in command().stdout
    assert "there is no command 'trian': did you mean 'train'?" in command("trian").stderr
    assert "usage: capsjax train" in command("train", "--help").stdout
    listed = command("reproduce", "--list")
    assert "gu2021/table2" in listed.stdout, listed.stderr
    # A recipe of the wheel.
    wrong = command("train", "--config=digits", "--workdir=x", "--config.training.epoch=1").stderr
    assert "did you mean 'training.epochs'?" in wrong
    evaluated = command("evaluate", f"--checkpoint={tiny_run}", "--output=x.json")
    assert "test accuracy: " in evaluated.stdout, evaluated.stderr
