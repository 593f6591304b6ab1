"""Atomic writes and copies of files, local or wherever etils.epath reaches."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from etils import epath

from capsjax._extras import install

P = TypeVar("P", Path, epath.Path)

# What a write that was killed leaves behind ends like this.
TEMPORARY = ".tmp"


def absolute(path: str | os.PathLike[str]) -> epath.Path:
    """Returns `path`, made absolute if it is local; an address such as gs://… as it is.

    Raises ValueError for an address that cannot be reached, or a name that is not UTF-8.
    """
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name {text!r} is not UTF-8: choose or make another") from None
    scheme, separator, _ = text.partition("://")
    if not separator:
        return epath.Path(path).absolute()
    try:
        address = epath.Path(path)
        address.exists()  # what an address takes is imported when it is first used
    except KeyError:
        raise ValueError(
            f"{text}: unknown kind of address {scheme}://, expected a local path or gs://BUCKET/PATH"
        ) from None
    except ImportError as error:
        command = install("gcs") if scheme == "gs" else f"pip install {scheme}fs"
        raise ValueError(f"{text}: {scheme}:// needs {command} ({error})") from None
    return address


def is_local(path: epath.Path | Path) -> bool:
    """Tells whether `path` is local: files there can be appended to and renamed."""
    return "://" not in os.fspath(path)


def write_atomically(path: P, contents: str | bytes, *, follow: bool = False) -> None:
    """Writes a file that, wherever this is interrupted, is there either whole or not at all.

    Text is UTF-8; for `follow` see `replacing`.
    """
    data = contents.encode() if isinstance(contents, str) else contents
    with replacing(path, follow=follow) as file:
        file.write(data)


@contextmanager
def replacing(path: P, *, follow: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file to write, which takes the place of `path` at the end of the block.

    Until then readers see the old file. An error leaves it as it was, and names `path`. A link is
    replaced, or if `follow` its target; a device or a pipe is written to.
    """
    # Not asked with etils, to which everything that is not a directory is a file.
    in_place = not is_local(path) or (os.path.exists(path) and not os.path.isfile(path))
    target = Path(os.path.realpath(path) if follow else path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        if in_place:
            with path.open("wb") as file:  # an object appears when it is closed
                yield file
            return
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
        if not in_place:
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
    """Yields the paths of all files in `directory` and its subdirectories, relative to it."""
    # Not with `walk` or `glob`, which epath does not offer alike for all file systems.
    for path in directory.iterdir():
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in files(path))
        else:
            yield path.name
