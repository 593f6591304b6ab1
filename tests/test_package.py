"""The package as a whole: what it imports, and what its wheel holds."""

import ast
import configparser
import os
import re
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest

import capsjax
from capsjax._version import REPOSITORY
from tests.processes import ROOT, printed

PACKAGE = ROOT / "capsjax"

# What each room may import of the others (docs/architecture.md).
MAY_IMPORT = {
    "__main__": "_names",
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
    "data": "_extras _files _lazy _names _options functional",
    "training": "_extras _files _lazy _names _options functional losses models data",
    "evaluation": "_extras _lazy _names functional routing layers models data training",
    "runs": "_extras _files _lazy _names _options _version functional "
    "routing models data training evaluation",
}


# What is imported under another name than that of the distribution, or comes with one of them.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl-py",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
}
OPTIONAL = {"torch"}  # a user installs it, and is told so


def imports(node: ast.AST, within: str = "") -> set[tuple[str, str]]:
    """(dotted name, extra) of all imports of a tree; the extra is "" outside `with extra(…)`."""
    found = set()
    if isinstance(node, ast.With):
        call = node.items[0].context_expr
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "extra":
            within = ast.literal_eval(call.args[0])
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return found
    if isinstance(node, ast.Import):
        found = {(alias.name, within) for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import of {node.module}"
        found = {(f"{node.module}.{alias.name}", within) for alias in node.names}
    return found.union(*(imports(child, within) for child in ast.iter_child_nodes(node)))


def parsed(folder: str) -> dict[Path, ast.AST]:
    return {f: ast.parse(f.read_text()) for f in sorted((ROOT / folder).rglob("*.py"))}


def distributions(tree: ast.AST) -> set[tuple[str, str]]:
    """What has to be installed for a file, and the extra that has it."""
    tops = {(name.partition(".")[0], within) for name, within in imports(tree)}
    ours = {"capsjax", *sys.stdlib_module_names, *OPTIONAL}
    return {(DISTRIBUTIONS.get(top, top), within) for top, within in tops if top not in ours}


def test_imports_run_one_way():
    for file, tree in parsed("capsjax").items():
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        names = [name.split(".") for name, _ in imports(tree)]
        used = {name[1] for name in names if name[0] == "capsjax" and len(name) > 1}
        assert room == "__init__" or used <= {room, *MAY_IMPORT[room].split()}, file


def test_routing_can_be_lifted_into_other_code():
    allowed = {"jax", "chex", "jaxtyping", "numpy"}
    for file, tree in parsed("capsjax/routing").items():
        assert {name for name, _ in distributions(tree)} <= allowed, file


def required() -> dict[str, set[str]]:
    """The distributions of the core, as "", and of each extra with those in it."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    found = {}
    for name, text in lines.items():
        words = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        found[name] = {re.split(r"[\[<>=~ ]", word)[0] for word in words}
        for word in words:
            for inner in re.findall(r"capsjax\[(.*)\]", word):
                found[name] |= set().union(*(found[part] for part in inner.split(",")))
    return found


def test_what_is_imported_is_installed():
    installed = required()
    for file, tree in parsed("capsjax").items():
        for name, within in distributions(tree):
            here = installed[""] | (installed[within] if within else set())
            assert name in here, f"{file}: {name} is neither in the core nor in [{within}]"


def test_what_the_scripts_import_is_installed():
    installed = required()
    assert installed["experiments"] <= installed["test"], "`make` installs the extra `test`"
    local = {path.stem for path in (ROOT / "experiments").iterdir()} | {"tests"}
    for file, tree in (parsed("experiments") | parsed("configs")).items():
        here = installed[""] | installed["experiments"] | {"packaging"}
        assert {name for name, _ in distributions(tree)} - local <= here, file


def test_the_core_is_small():
    """What routing, layers, models and `restore` need, and nothing of data or experiments."""
    assert not required()[""] & (
        required()["experiments"] - required()["train"] | {"chex", "tensorboardX"}
    )


def test_an_import_says_which_extra_it_lacks(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"PIL is not .*: pip install --editable '/.*\[data\]'$"
    ):
        capsjax.data.read_image(tmp_path / "x.png")


def test_import_is_light():
    heavy = ["tensorflow_datasets", "tensorflow", "matplotlib", "sklearn", "scipy"]
    heavy += ["PIL", "orbax", "flax"]
    program = f"import sys, capsjax.data; print([m for m in {heavy} if m in sys.modules])"
    assert printed(program) == "[]\n"


def test_modules_are_there_without_an_import_of_their_own():
    names = "capsjax.training.config", "capsjax.data.tasks.create", "capsjax.evaluation.entropy"
    printed(f"import capsjax; print({', '.join(names)})")
    for room in (capsjax, capsjax.training, capsjax.data, capsjax.evaluation):
        with pytest.raises(AttributeError, match="no attribute 'looop'"):
            _ = room.looop


def test_dir_lists_everything():
    assert set(capsjax.__all__) <= set(dir(capsjax))
    assert {"checkpoints", "loop"} <= set(dir(capsjax.runs))


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
