"""The command that trains a run's network again."""

import shlex
from pathlib import Path
from typing import Any

import _configs
import ml_collections

from capsjax.training.config import flatten


def train_command(config: ml_collections.ConfigDict, workdir: Path) -> str | None:
    """experiments/train.py with the nearest file of configs/ and what differs from it.

    A run knows its config and not the file it came from. None: no file has the same keys, as
    after an update.
    """
    wanted = _without_task(config)
    found: list[tuple[str, dict[str, Any]]] = []
    for name in _configs.files():
        values = _without_task(_configs.load(name))
        if values.keys() == wanted.keys():
            found.append((f"{name}.py", {k: v for k, v in wanted.items() if values[k] != v}))
    if not found:
        return None
    name, changes = min(found, key=lambda candidate: len(candidate[1]))
    words = ["python", "experiments/train.py", f"--config=configs/{name}", f"--workdir={workdir}"]
    return shlex.join([*words, *(f"--config.{key}={value}" for key, value in changes.items())])


def _without_task(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """What a person sets: `task` is what the data turned out to be."""
    return {k: v for k, v in flatten(config).items() if not k.startswith("task.")}
