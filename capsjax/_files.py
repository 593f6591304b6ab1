"""Files of caches, runs and results: whole, held by one process, known by what made them."""

import hashlib
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from etils import epath

from capsjax._extras import install


def cache_dir() -> Path:
    """Returns where decoded data and compiled programs are kept between runs."""
    return Path(os.environ.get("CAPSJAX_CACHE_DIR") or "~/.cache/capsjax").expanduser()


def digest(*parts: str | bytes) -> str:
    """Hashes what a file is made from, for its name or to see that it is stale (SHA-256)."""
    encoded = (p.encode(errors="surrogateescape") if isinstance(p, str) else p for p in parts)
    return hashlib.sha256(b"".join(encoded)).hexdigest()


def absolute(path: str | os.PathLike[str]) -> epath.Path:
    """Returns `path`, made absolute if it is local; an address such as gs://… as it is."""
    if is_local(path):
        return epath.Path(os.path.expanduser(path)).absolute()
    try:
        address = epath.Path(path)
        address.exists()  # what an address takes is imported when it is first used
    except (ImportError, KeyError) as error:
        raise ValueError(
            f"{os.fspath(path)} cannot be reached ({type(error).__name__}: {error}): expected a "
            f"local path, or gs://BUCKET/PATH after {install('gcs')}"
        ) from error
    return address


def is_local(path: str | os.PathLike[str]) -> bool:
    """Tells whether `path` is local: files there can be appended to and renamed."""
    return "://" not in os.fspath(path)


def write_atomically(path: str | os.PathLike[str], contents: str | bytes) -> None:
    """Writes a file whole or not at all; what UTF-8 lacks of a text is written as an escape."""
    data = contents.encode(errors="backslashreplace") if isinstance(contents, str) else contents
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file to write, which takes the place of `path` at the end of the block.

    Folders above it are made. An error leaves the old file as it was, and names `path`. If `path`
    is a link, its target is replaced; a device or a pipe is written to.
    """
    place = absolute(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    # `os.path`, not etils, for which everything that is not a directory is a file.
    if not is_local(place) or (os.path.exists(place) and not os.path.isfile(place)):
        whole = io.BytesIO()  # writing an archive seeks, which a store or a pipe cannot
        yield whole
        place.write_bytes(whole.getvalue())
        return
    target = Path(os.path.realpath(place))
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync(target.parent)
    except OSError as error:
        if error.filename in (None, os.fspath(temporary)):  # None where a disk is full
            error.filename = os.fspath(path)
        raise
    finally:
        with suppress(OSError):  # such as that of a file system that is read-only
            temporary.unlink(missing_ok=True)


def sync(path: epath.Path | Path) -> None:
    """Flushes a local file or directory to disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds the lock `file` while in the block; the system releases it if the process ends.

    If another process holds it, this waits; without `wait`, the block gets False.
    """
    import fcntl  # not on every system

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
