"""What a record on disk was made from, whether it is whole, and who may write it.

- `changes` and `differences`: what makes a record stale.
- `seal` and `damage`: checksums of all files in a directory, and what is wrong with them.
- `lock`: keeps other processes out while a record is written.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from etils import epath

from capsjax import _files
from capsjax._files import Lock, NoLocks, lock

__all__ = ["Lock", "NoLocks", "changes", "damage", "differences", "lock", "seal"]

# Beside the files of a sealed directory.
SUMS = "sha256.json"
BLOCK = 1 << 20
ABSENT = object()


def changes(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The recorded value and today's of each key in which the two differ; `ABSENT` for none."""
    pairs = {
        key: (recorded.get(key, ABSENT), today.get(key, ABSENT))
        for key in sorted(recorded.keys() | today.keys())
    }
    return {key: pair for key, pair in pairs.items() if pair[0] is ABSENT or pair[0] != pair[1]}


def differences(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> list[str]:
    """One line for each of `changes`."""
    return [
        f"{key}: {'not set' if old is ABSENT else repr(old)} → "
        f"{'not set' if new is ABSENT else repr(new)}"
        for key, (old, new) in changes(recorded, today).items()
    ]


def seal(directory: epath.Path) -> None:
    """Writes the checksums of all files in `directory` into it, and syncs all of it to disk."""
    sums = {name: _sum(directory / name) for name in _items(directory)}
    (directory / SUMS).write_text(json.dumps(sums, indent=1))
    names = [*sums, SUMS]
    folders = {parent for name in names for parent in epath.Path(name).parents}
    for name in [*names, *folders]:
        _files.sync(directory / name)


def damage(directory: epath.Path) -> str | None:
    """What is wrong with a sealed directory; None if nothing changed since it was sealed."""
    try:
        sums = json.loads((directory / SUMS).read_text())
    except FileNotFoundError:
        return "it has no checksums: its save was interrupted, or it was not made by capsjax"
    except (OSError, ValueError, RecursionError) as error:
        return f"its checksums cannot be read ({error})"
    if not isinstance(sums, dict):
        return f"its checksums are a {type(sums).__name__}, expected one for each file"
    files = set(_items(directory))
    if missing := sorted(sums.keys() - files):
        return f"{missing[0]} is missing"
    if surplus := sorted(files - sums.keys()):
        return f"{surplus[0]} does not belong to this checkpoint"
    for name, expected in sums.items():
        if _sum(directory / name) != expected:
            return f"{name} is damaged: its contents are not what was saved"
    return None


def _items(directory: epath.Path) -> list[str]:
    """The files of the items, which are in folders; the files beside them are Orbax's markers."""
    return sorted(name for name in _files.files(directory) if "/" in name)


def _sum(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
