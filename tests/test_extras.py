"""The core and the extras of setup.cfg: what is imported where is installed there."""

import ast
import configparser
import re
import sys
from pathlib import Path

import pytest

from capsjax._extras import extra
from capsjax.data import read_image

ROOT = Path(__file__).parents[1]
# What is imported under another name than that of the distribution, or comes with one of them.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "absl": "absl-py",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
}
OPTIONAL = {"wandb", "trackio", "torch"}  # a user installs them, and is told so


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


def imports(node: ast.AST, within: str = "") -> set[tuple[str, str]]:
    """(distribution, extra) of all imports of a tree; the extra is "" outside `with extra(…)`."""
    found = set()
    if isinstance(node, ast.With):
        call = node.items[0].context_expr
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "extra":
            within = ast.literal_eval(call.args[0])
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return found
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module]
    for name in names:
        top = name.split(".")[0]
        if top not in {"capsjax", *sys.stdlib_module_names, *OPTIONAL}:
            found.add((DISTRIBUTIONS.get(top, top), within))
    for child in ast.iter_child_nodes(node):
        found |= imports(child, within)
    return found


def test_what_is_imported_is_installed():
    installed = required()
    for file in sorted((ROOT / "capsjax").rglob("*.py")):
        for name, within in imports(ast.parse(file.read_text())):
            here = installed[""] | (installed[within] if within else set())
            assert name in here, f"{file}: {name} is neither in the core nor in [{within}]"


def test_what_the_scripts_import_is_installed():
    installed = required()
    assert installed["experiments"] <= installed["test"], "`make` installs the extra `test`"
    local = {path.stem for path in (ROOT / "experiments").iterdir()} | {"tests"}
    for folder in ("experiments", "configs"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            names = {name for name, _ in imports(ast.parse(file.read_text()))} - local
            here = installed[""] | installed["experiments"] | {"packaging"}
            assert names <= here, file


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
        read_image(tmp_path / "x.png")


def test_other_errors_pass():
    with pytest.raises(ValueError, match="mine"), extra("data"):
        raise ValueError("mine")
