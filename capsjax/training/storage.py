"""Where a run lives: a local directory, or any address that etils.epath knows (gs://…)."""

import os
from collections.abc import Iterator

from etils import epath


def place(path: str | os.PathLike[str]) -> epath.Path:
    """`path`, absolute if it is local."""
    given = epath.Path(path)
    return given.absolute() if is_local(given) else given


def is_local(path: epath.Path) -> bool:
    """Whether it is on a file system of this machine, which can append to and rename files."""
    return "://" not in os.fspath(path)


def write_whole(path: epath.Path, text: str) -> None:
    """Writes a file that is there either whole or not at all, whenever this is interrupted."""
    if not is_local(path):
        path.write_text(text)  # an object appears when it is closed
        return
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text)
    to_disk(temporary)
    temporary.replace(path)
    to_disk(path.parent)


def to_disk(path: epath.Path) -> None:
    """Returns when a local file's contents, or a directory's names, would survive a power cut."""
    if not is_local(path) or os.name != "posix":  # only there can directories be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: epath.Path, target: epath.Path) -> None:
    """Moves a directory; `target` is not there yet."""
    if is_local(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        return
    copy(source, target)
    source.rmtree()  # last: interrupted, nothing is lost


def copy(source: epath.Path, target: epath.Path) -> None:
    """Copies the files of a directory, and of those in it, into `target`."""
    for name in files(source):
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((source / name).read_bytes())


def files(directory: epath.Path) -> Iterator[str]:
    """The names of all files in it and its subdirectories, relative to it."""
    # Not with `walk` or `glob`, which epath does not offer alike for all file systems.
    for path in directory.iterdir():
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in files(path))
        else:
            yield path.name
