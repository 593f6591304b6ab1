"""What is said when a run cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager

from etils import epath

# Recognised by the system's own message, which TensorStore repeats in its exceptions.
_CAUSES = {
    "No space left on device": "the disk is full",
    "Disk quota exceeded": "the disk quota is used up",
    "Too many open files": "the process may not open enough files (ulimit -n)",
}
_NOT_FOUND = ("No such file or directory", "NOT_FOUND: ")


def removed(directory: epath.Path) -> OSError:
    """Returns the error where the directory of a run is gone."""
    return OSError(
        f"{directory} was removed during training: nothing can be saved there any more, so "
        "training stopped"
    )


@contextmanager
def explained(directory: epath.Path) -> Iterator[None]:
    """Says in plain words why the run in `directory` could not be written, and what is left of it.

    Errors of other kinds pass.
    """
    try:
        yield
    except Exception as error:  # Orbax and TensorStore raise many types
        text = "\n".join(map(str, _chain(error)))
        cause = next((cause for words, cause in _CAUSES.items() if words in text), None)
        gone = str(directory) in text or not directory.is_dir()
        if cause is None and gone and any(words in text for words in _NOT_FOUND):
            raise removed(directory) from error
        if cause is None:
            raise
        step = _newest(directory)
        kept = (
            "no checkpoint was finished yet: the same command starts again"
            if step is None
            else f"the checkpoint of step {step} stays: the same command resumes from there"
        )
        message = f"{cause}: {directory} could not be written. Mend that first; {kept}"
        raise OSError(message) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _newest(directory: epath.Path) -> int | None:
    """Returns the step of the newest checkpoint that was finished."""
    try:
        names = [path.name for path in (directory / "checkpoints").iterdir()]
    except OSError:
        return None
    return max((int(name) for name in names if name.isdecimal()), default=None)
