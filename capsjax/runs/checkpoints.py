"""Reads the checkpoints of a run. Each is complete and has checksums.

A work directory holds `config.json` and `checkpoints/STEP/`, each with three items: `model`
(parameters and running statistics), `optimizer` (its state and the step) and `about` (the config,
the metrics history and the circumstances, JSON). Nothing else is needed to resume or to evaluate.
"""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Literal, get_args

import jax
import ml_collections
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx

from capsjax import _files
from capsjax.models import paths
from capsjax.models.model import Model
from capsjax.runs import about, release
from capsjax.runs.about import About, Checkpoint
from capsjax.runs.integrity import newest_intact
from capsjax.training.build import trained_model

Which = Literal["best", "latest", "mean"] | int
FOLDER = "checkpoints"


def restore(
    path: str | os.PathLike[str], which: Which = "best"
) -> tuple[Model, ml_collections.ConfigDict]:
    """Restores the trained network of a run, in evaluation mode, and its config.

    Args:
      path: the run's work directory, or a .safetensors file of experiments/release.py; local, or
        any address of etils.epath; for a file also an http(s) address.
      which: "best" by validation accuracy (the latest if nothing was held out), "latest", the
        number of a step, or "mean", of the variables of the latest `checkpoints.keep` (Izmailov et
        al. 2018); a released file contains one network.

    Raises FileNotFoundError or ValueError if there is no checkpoint, no such step, or damage.
    """
    checkpoint = read(path, which)
    return checkpoint.model, checkpoint.config


def read(path: str | os.PathLike[str], which: Which = "best") -> Checkpoint:
    """Reads what `restore` returns, with the history and the step."""
    if which not in get_args(get_args(Which)[0]) and not isinstance(which, Integral):
        raise ValueError(f'which must be "best", "latest", "mean" or a step, got {which!r}')
    if release.is_one(path):
        return release.read(path, which)
    workdir = _files.absolute(path)
    if which == "mean":
        latest = read(workdir, "latest")
        steps = finished(workdir)[: latest.config.checkpoints.keep]
        states = [nnx.state(read(workdir, step).model) for step in steps]
        nnx.update(latest.model, jax.tree.map(lambda *x: sum(x) / len(x), *states))
        return latest
    step = _choose(workdir, which)
    directory = workdir / FOLDER / str(step)
    config, history, _ = about_of(directory)
    with reader() as checkpointer:
        saved = checkpointer.restore(directory / "model")
    variables = paths.by_path(saved["params"]) | paths.by_path(saved["rest"])
    return Checkpoint(trained_model(config, variables, directory), config, history, step)


def reader() -> ocp.StandardCheckpointer:
    """Makes what reads on this host, whether or not the others do; by default they would wait."""
    own = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"host{own}"
    )
    return ocp.StandardCheckpointer(multiprocessing_options=options)


def finished(workdir: epath.Path) -> list[int]:
    """Returns the steps of a run's checkpoints that were saved to their end, the newest first."""
    folder = workdir / FOLDER
    found = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.exists() else []
    steps = [int(path.name) for path in found if ocp.utils.is_checkpoint_finalized(path)]
    return sorted(steps, reverse=True)


def _choose(workdir: epath.Path, which: Which) -> int:
    steps = finished(workdir)
    if not steps:
        what = "has no checkpoints" if workdir.exists() else "does not exist"
        raise FileNotFoundError(
            f"{workdir} {what}: expected the --workdir of experiments/train.py, the seed_N in it "
            f"where there are several, or a file that ends in {release.SUFFIX}"
        )
    if isinstance(which, Integral):
        if which not in steps:
            raise ValueError(f"there is no step {which} in {workdir}, only {sorted(steps)}")
        return newest_intact(workdir / FOLDER, [int(which)])
    latest = newest_intact(workdir / FOLDER, steps)
    if which == "latest":
        return latest
    accuracy = about_of(workdir / FOLDER / str(latest)).history.validation_accuracy()
    best, *_ = best_first([*accuracy], accuracy) or [latest]
    left = [*best_first(steps, accuracy), latest]
    if left[0] != best:
        said = f"{workdir} has lost its best checkpoint, step {best}: {left[0]} is the best left"
        warnings.warn(said, stacklevel=3)
    return newest_intact(workdir / FOLDER, left)


def about_of(directory: epath.Path) -> About:
    return about.parse(json.loads((directory / "about" / "metadata").read_text()), directory)


def best_first(steps: Sequence[int], accuracy: Mapping[int, float]) -> list[int]:
    """Returns the steps that have an accuracy: the highest first, then the latest."""
    measured = [step for step in steps if step in accuracy]
    return sorted(measured, key=lambda step: (accuracy[step], step), reverse=True)
