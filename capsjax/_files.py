"""Atomic writes, locks and copies of files, local or wherever etils.epath reaches."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from etils import epath

P = TypeVar("P", Path, epath.Path)

# What a write that was killed leaves behind ends like this.
TEMPORARY = ".tmp"


def absolute(path: str | os.PathLike[str]) -> epath.Path:
    """`path`, made absolute if it is local; an address such as gs://… as it is."""
    given = epath.Path(path)
    return given.absolute() if is_local(given) else given


def is_local(path: epath.Path | Path) -> bool:
    """Whether `path` is in a local file system, where files can be appended to and renamed."""
    return "://" not in os.fspath(path)


def write_atomically(path: epath.Path, text: str) -> None:
    """Writes a file that, wherever this is interrupted, is there either whole or not at all."""
    if not is_local(path):
        path.write_text(text)  # an object appears when it is closed
        return
    with replacing(path) as temporary:
        temporary.write_text(text)


@contextmanager
def replacing(path: P) -> Iterator[P]:
    """A temporary file that takes the place of the local `path` at the end of the block.

    Until then readers see the old file; an error leaves it as it was.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: epath.Path | Path) -> None:
    """Returns when the contents of a local file or directory would survive a power cut."""
    if not is_local(path) or os.name != "posix":  # only there can directories be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: epath.Path, target: epath.Path) -> None:
    """Moves a directory to `target`, which must not exist yet."""
    if is_local(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        return
    copy(source, target)
    source.rmtree()  # last: interrupted, nothing is lost


def copy(source: epath.Path, target: epath.Path) -> None:
    """Copies all files of a directory and its subdirectories into `target`."""
    for name in files(source):
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((source / name).read_bytes())


def files(directory: epath.Path) -> Iterator[str]:
    """The paths of all files in `directory` and its subdirectories, relative to it."""
    # Not with `walk` or `glob`, which epath does not offer alike for all file systems.
    for path in directory.iterdir():
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in files(path))
        else:
            yield path.name


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds the lock `file` while in the block; the system releases it if the process ends.

    Args:
      file: is created, and stays. On a network file system, locks must work between machines.
      wait: wait until no other process holds the lock, instead of entering the block at once.

    Yields:
      Whether the lock is held: always true with `wait`.
    """
    import fcntl  # not on every system

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise OSError(
                f"{file} cannot be locked ({error}): choose a directory on a file system with locks"
            ) from error
        yield True  # closing the file lets go
