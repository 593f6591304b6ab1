"""What a record on disk was made from, whether it is whole, and who may write it.

- `changes` and `differences`: what makes a record stale.
- `seal` and `damage`: checksums of all files in a directory, and what is wrong with them.
- `lock`: keeps other processes out while a record is written.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etils import epath

from capsjax import _files

# Beside the files of a sealed directory.
SUMS = "sha256.json"
ABSENT = object()


def changes(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the recorded and today's value of each key that differs; `ABSENT` for none."""
    pairs = {
        key: (recorded.get(key, ABSENT), today.get(key, ABSENT))
        for key in sorted(recorded.keys() | today.keys())
    }
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}


def differences(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> list[str]:
    """Writes one line for each of `changes`."""

    def words(value: Any) -> str:
        return "not set" if value is ABSENT else repr(value)

    pairs = changes(recorded, today).items()
    return [f"{key}: {words(old)} → {words(new)}" for key, (old, new) in pairs]


def seal(directory: epath.Path) -> None:
    """Writes the checksums of all files in `directory` into it, and syncs all of it to disk."""
    sums = {name: _sum(directory / name) for name in _items(directory)}
    (directory / SUMS).write_text(json.dumps(sums, indent=1))
    if _files.is_local(directory):
        names = [*sums, SUMS]
        folders = {parent for name in names for parent in epath.Path(name).parents}
        for name in [*names, *folders]:
            _files.sync(directory / name)


def damage(directory: epath.Path) -> str | None:
    """Says what is wrong with a sealed directory; None if nothing changed since it was sealed."""
    try:
        sums = json.loads((directory / SUMS).read_text())
    except (FileNotFoundError, ValueError):
        return "it has no checksums: its save was interrupted, or it was not made by capsjax"
    files = _items(directory)
    if differing := sorted(sums.keys() ^ files):
        what = "is missing" if differing[0] in sums else "does not belong to this checkpoint"
        return f"{differing[0]} {what}"
    for name in files:
        if _sum(directory / name) != sums[name]:
            return f"{name} is damaged: its contents are not what was saved"
    return None


def _items(directory: epath.Path) -> list[str]:
    """Lists the files of the items, which are in folders; files beside them are Orbax's markers."""
    return sorted(name for name in _files.files(directory) if "/" in name)


def _sum(path: epath.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[Callable[[], bool] | None]:
    """Holds the lock `file` while in the block; the system releases it if the process ends.

    The file is created, and stays; nothing is written to it. The block gets a function that tells
    whether others are still kept out: not if the file was removed or replaced. If another process
    holds the lock, this waits; without `wait`, the block gets None.
    """
    import fcntl  # not on every system

    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with file.open("ab") as opened:

            def holds() -> bool:
                return file.exists() and os.path.samestat(file.stat(), os.fstat(opened.fileno()))

            try:
                fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield None
                return
            if holds():  # else it was removed between opening and locking
                yield holds
                return
