"""What is said when a run cannot be written."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from etils import epath

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EMFILE: "the process may not open enough files (ulimit -n)",
    errno.ENFILE: "the system cannot open more files",
}
# Messages of the operating system and of TensorStore, which raises its own exception types.
_WORDS = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Too many open files": errno.EMFILE,
}


@contextmanager
def explained(directory: epath.Path) -> Iterator[None]:
    """Says in plain words why the run in `directory` could not be written, and what is left of it.

    Errors of other kinds pass.
    """
    try:
        yield
    except Exception as error:  # Orbax and TensorStore raise all kinds
        number = next(filter(None, map(_number, _chain(error))), None)
        if number is None:
            raise
        step = _newest(directory)
        kept = (
            "no checkpoint was finished yet: the same command starts again"
            if step is None
            else f"the checkpoint of step {step} stays: the same command resumes from there"
        )
        cause = f"{_CAUSES[number]}: {directory} could not be written"
        raise OSError(f"{cause}. Mend that first; {kept}") from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno in _CAUSES:
        return error.errno
    return next((number for words, number in _WORDS.items() if words in str(error)), None)


def _newest(directory: epath.Path) -> int | None:
    """The step of the newest checkpoint that was finished."""
    try:
        names = [path.name for path in (directory / "checkpoints").iterdir()]
    except OSError:
        return None
    return max((int(name) for name in names if name.isdecimal()), default=None)
