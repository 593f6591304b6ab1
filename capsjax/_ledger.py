"""What a record on disk was made from, whether it is whole, and who may write it.

- `changes` and `differences`: what makes a record stale.
- `seal` and `damage`: checksums of all files in a directory, and what is wrong with them.
- `lock`: keeps other processes out while a record is written.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etils import epath

from capsjax import _files

# Beside the files of a sealed directory.
SUMS = "sha256.json"
BLOCK = 1 << 20
ABSENT = object()


def changes(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the recorded and today's value of each key that differs; `ABSENT` for none."""
    pairs = {
        key: (recorded.get(key, ABSENT), today.get(key, ABSENT))
        for key in sorted(recorded.keys() | today.keys())
    }
    return {key: pair for key, pair in pairs.items() if pair[0] is ABSENT or pair[0] != pair[1]}


def differences(recorded: Mapping[str, Any], today: Mapping[str, Any]) -> list[str]:
    """Writes one line for each of `changes`."""
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
    """Says what is wrong with a sealed directory; None if nothing changed since it was sealed."""
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
    """Lists the files of the items, which are in folders; files beside them are Orbax's markers."""
    return sorted(name for name in _files.files(directory) if "/" in name)


def _sum(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


class Lock:
    """A lock that this process holds on a file."""

    def __init__(self, file: Path, descriptor: int):
        self._file, self._descriptor = file, descriptor

    @property
    def holds(self) -> bool:
        """Whether others are still kept out: not if the file was removed or replaced."""
        try:
            there = os.stat(self._file, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))


class NoLocks(OSError):
    """Nothing can be locked there."""


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[Lock | None]:
    """Holds the lock `file` while in the block; the system releases it if the process ends.

    The file is created, and stays; nothing is written to it. If another process holds the lock,
    this waits; without `wait`, the block gets None.

    Raises:
      NoLocks: the file system has no locks, or `file` must not be written.
      ValueError: `file` is a link, a directory or a device.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    held = None
    while held is None:
        descriptor = _open_lock(file)
        try:
            if not _acquire(file, descriptor, wait=wait):
                yield None
                return
            held = Lock(file, descriptor)
            if held.holds:
                yield held
            else:  # it was removed between opening and locking
                held = None
        finally:
            os.close(descriptor)  # which lets go


def _open_lock(file: Path) -> int:
    """Opens `file`, which is created if it is not there, and never the target of a link."""
    if os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode):
        what = "a link" if file.is_symlink() else "no file"
        raise ValueError(f"{file} is {what}, expected a file of capsjax's own to lock: remove it")
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise NoLocks(f"{file} cannot be locked ({error.strerror})") from error
        raise


def _acquire(file: Path, descriptor: int, *, wait: bool) -> bool:
    import fcntl  # not on every system

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocks(
            f"{file} cannot be locked ({error}): choose a directory on a file system with locks"
        ) from error
    return True
