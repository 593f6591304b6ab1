"""Work that one process at a time does, though several may be started."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds the lock `file` while in the block; the system lets go of it if the process ends.

    Args:
      file: is created, and stays. On a network file system its locks must work between machines.
      wait: until no other process holds it. Else the block is entered at once.

    Yields:
      Whether the lock is held, always true with `wait`.
    """
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
