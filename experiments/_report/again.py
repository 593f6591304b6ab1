"""The command that trains a run's network again."""

import inspect
import runpy
import shlex
from pathlib import Path
from typing import Any

import ml_collections

from capsjax.training.config import flatten

CONFIGS = Path(__file__).parents[2] / "configs"


def train_command(config: ml_collections.ConfigDict, workdir: Path) -> str | None:
    """experiments/train.py with the nearest file of configs/ and what differs from it.

    A run knows its config and not the file it came from. None: no file has the same keys, as
    after an update.
    """
    wanted = _without_task(config)
    found: list[tuple[str, dict[str, Any]]] = []
    for file in sorted(CONFIGS.glob("*.py")):
        get_config = runpy.run_path(str(file))["get_config"]
        parameters = inspect.signature(get_config).parameters.values()
        if any(parameter.default is parameter.empty for parameter in parameters):
            continue  # a family of configs, none of which is the first
        values = _without_task(get_config())
        if values.keys() == wanted.keys():
            found.append((file.name, {k: v for k, v in wanted.items() if values[k] != v}))
    if not found:
        return None
    name, changes = min(found, key=lambda candidate: len(candidate[1]))
    words = ["python", "experiments/train.py", f"--config=configs/{name}", f"--workdir={workdir}"]
    return shlex.join([*words, *(f"--config.{key}={value}" for key, value in changes.items())])


def _without_task(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """What a person sets: `task` is what the data turned out to be."""
    return {k: v for k, v in flatten(config).items() if not k.startswith("task.")}
