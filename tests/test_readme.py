"""The README's examples run."""

import re
from pathlib import Path

import jax.numpy as jnp

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_python_examples(tiny_run):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    restore, routing = blocks
    namespace = {"images": jnp.zeros((2, 8, 8, 1))}
    exec(restore.replace("runs/demo", str(tiny_run)), namespace)
    assert namespace["scores"].shape == (2, 10)
    exec(routing, namespace)
    assert namespace["routed"].poses.shape == (32, 10, 16)
    assert namespace["routed"].coupling.shape == (32, 1152, 10)


def test_links_and_commands_point_to_files():
    root = Path(__file__).parents[1]
    linked = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    named = re.findall(r"(?:experiments|configs)/\w+\.py", README)
    missing = [path for path in linked + named if not (root / path).exists()]
    assert not missing
