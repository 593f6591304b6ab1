"""Finds the intact checkpoints of a directory, and the one that is wanted."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import orbax.checkpoint as ocp
from etils import epath

from capsjax import _files, _ledger
from capsjax.runs import about
from capsjax.runs.about import About


def check_names(directory: epath.Path) -> None:
    """Raises ValueError if something that is not a checkpoint has a step number as its name.

    A link would be another run's checkpoint.
    """
    if not (_files.is_local(directory) and directory.is_dir()):
        return
    for path in map(Path, directory.iterdir()):
        if not path.name.isdecimal():
            continue  # Orbax's own: a save that is under way, or was cut off
        is_step = path.is_dir() and not path.is_symlink() and path.name == str(int(path.name))
        # A missing one was a checkpoint that a running training has deleted since.
        if not is_step and os.path.lexists(path):
            misspelt = "a directory whose name is not spelt as a step's"
            what = "a link" if path.is_symlink() else "a file" if path.is_file() else misspelt
            raise ValueError(
                f"{path} is {what}, not a checkpoint of this run: remove it. Nothing was changed"
            )


def finished(directory: epath.Path) -> list[int]:
    """Returns the steps of the checkpoints that were saved to their end, the newest first."""
    steps = [path for path in directory.iterdir() if path.name.isdecimal()]
    return sorted(
        (int(p.name) for p in steps if ocp.utils.is_checkpoint_finalized(p)), reverse=True
    )


def choose(directory: epath.Path, which: Literal["best", "latest"] | int) -> int:
    """Returns the step that is wanted, or else the newest before it whose files are intact."""
    check_names(directory)
    steps = finished(directory)
    if not steps:
        raise FileNotFoundError(f"{directory} holds no finished checkpoint")
    if isinstance(which, int):
        if which not in steps:
            known = ", ".join(map(str, sorted(steps)))
            raise ValueError(f"there is no step {which} in {directory}, only {known}")
        return first_good(directory, [which])
    latest = first_good(directory, steps)
    if which == "latest":
        return latest
    accuracy = description(directory / str(latest)).history.validation_accuracy()
    best, best_kept = best_step([*accuracy], accuracy), best_step(steps, accuracy)
    if best is None or best_kept is None:
        return latest
    if best_kept != best:
        warnings.warn(
            f"{directory}: the checkpoint of step {best}, which had the best validation "
            f"accuracy ({accuracy[best]:.2%}), is gone; taking that of step {best_kept} "
            f"({accuracy[best_kept]:.2%})",
            RuntimeWarning,
            stacklevel=3,
        )
    return first_good(directory, [best_kept])


def description(directory: epath.Path) -> About:
    """Reads what the checkpoint in `directory` says about itself."""
    with reading(directory):
        tree = json.loads((directory / "about" / "metadata").read_text())
    return about.parse(tree, directory)


def first_good(directory: epath.Path, steps: Sequence[int]) -> int:
    """Returns the first step whose files are as they were saved; those before it are warned about.

    Orbax alone would restore a flipped bit in silence.
    """
    problems: list[str] = []
    for step in steps:
        wrong = _ledger.damage(directory / str(step))
        if wrong is None:
            for message in problems:
                warnings.warn(f"{message}; going back to step {step}", RuntimeWarning, stacklevel=4)
            return step
        problems.append(f"the checkpoint {directory / str(step)} cannot be used: {wrong}")
    raise ValueError("; ".join(problems) + ". Nothing was changed")


def best_step(steps: Sequence[int], accuracy: Mapping[int, float]) -> int | None:
    """Returns the step of the highest accuracy, the latest of equal ones, or None."""
    measured = [step for step in steps if step in accuracy]
    return max(measured, key=lambda step: (accuracy[step], step), default=None)


@contextmanager
def reading(directory: os.PathLike[str]) -> Iterator[None]:
    """Reports what Orbax and TensorStore raise for damaged files as a ValueError of one line."""
    try:
        yield
    except Exception as error:
        first_line = str(error).partition("\n")[0][:200]
        raise ValueError(
            f"the checkpoint in {os.fspath(directory)} cannot be read: it is damaged or "
            f"belongs to another run ({type(error).__name__}: {first_line}). Nothing was changed"
        ) from error
