"""The command that trains a run's network again."""

import shlex
from collections.abc import Sequence
from typing import Any

import _configs
import ml_collections

from capsjax.training.config import NAMED, flatten
from capsjax.training.overrides import override

NAMES = tuple(f"{section}.name" for section in NAMED)


def train_command(
    config: ml_collections.ConfigDict, workdir: str, imports: Sequence[str] = ()
) -> str | None:
    """Returns experiments/train.py with the nearest file of configs/ and what differs from it.

    A run knows its config and not the file it came from. None: no file has the same keys, as
    after an update. `imports` are words --import=FILE.py.
    """
    wanted = _without_task(config)
    candidates: list[list[str]] = []
    for name in _configs.files():
        base = _configs.read(name)
        before = flatten(base)
        names = {k: wanted[k] for k in NAMES if before[k] != wanted[k]}
        values = _without_task(override(base, names))
        if values.keys() == wanted.keys():
            changes = names | {k: v for k, v in wanted.items() if values[k] != v}
            changed = [f"--config.{key}={value}" for key, value in changes.items()]
            words = [f"--config=configs/{name}.py", f"--workdir={workdir}", *imports, *changed]
            candidates.append(["python", "experiments/train.py", *words])
    return shlex.join(min(candidates, key=len)) if candidates else None


def _without_task(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns what a person sets: `task` follows from the data."""
    return {k: v for k, v in flatten(config).items() if not k.startswith("task.")}
