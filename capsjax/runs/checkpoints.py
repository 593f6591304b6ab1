"""Restores trained networks, from the work directories of runs and from released files."""

import os
from numbers import Integral
from pathlib import Path
from typing import Literal, cast

import jax
import ml_collections
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx

from capsjax import _files
from capsjax.models import paths
from capsjax.models.model import Model
from capsjax.runs import about, release
from capsjax.runs.about import Checkpoint
from capsjax.runs.verifying import choose, description, finished, reading
from capsjax.training.build import abstract_model
from capsjax.training.state import split

Which = Literal["best", "latest"] | int


def restore(
    path: str | os.PathLike[str], which: Which = "best"
) -> tuple[Model, ml_collections.ConfigDict]:
    """Restores the trained network of a run and its config, from the checkpoint alone.

    Args:
      path: the run's work directory, or a .safetensors file of experiments/release.py; local or any
        address of etils.epath, a file at http(s) addresses too.
      which: "best" by validation accuracy (the latest where nothing was held out), "latest", or
        the number of a step; a released file holds one.

    Raises:
      FileNotFoundError: there is no such directory or file, or no checkpoint in it.
      ValueError: there is no such step, or the checkpoint cannot be read.
    """
    checkpoint = read(path, which)
    return checkpoint.model, checkpoint.config


def read(path: str | os.PathLike[str], which: Which = "best") -> Checkpoint:
    """Reads what `restore` returns, with the history and the step."""
    if isinstance(which, Integral):
        which = int(which)
    elif which not in ("best", "latest"):
        raise ValueError(f'which must be "best", "latest" or a step number, got {which!r}')
    if release.is_one(path):
        return release.read(path, which)
    directory = _checkpoints(path)
    step = choose(directory, which)
    source = directory / str(step)
    config, history, _ = description(source)
    graphdef, params, rest = split(abstract_model(config))
    like = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), {"params": params, "rest": rest})
    with reading(source), ocp.StandardCheckpointer() as checkpointer:
        variables = checkpointer.restore(source / "model", like)
    variables = jax.tree.map(jax.numpy.asarray, variables)
    params, rest = variables["params"], variables["rest"]
    about.check_finite(paths.by_path(params) | paths.by_path(rest), source)
    return Checkpoint(cast(Model, nnx.merge(graphdef, params, rest)), config, history, step)


def latest_step(workdir: epath.Path) -> int | None:
    """Returns the step of the newest checkpoint in a work directory; None if there is none yet."""
    directory = workdir / "checkpoints"
    return max(finished(directory), default=None) if directory.is_dir() else None


def _checkpoints(path: str | os.PathLike[str]) -> epath.Path:
    """Returns the folder of a run's checkpoints; raises FileNotFoundError if there is none."""
    workdir = _files.absolute(path)
    directory = workdir / "checkpoints"
    if directory.is_dir():
        return directory
    if workdir.exists() and not workdir.is_dir():
        raise ValueError(
            f"{path} is a file: expected a work directory or a file that ends in {release.SUFFIX}"
        )
    if _files.is_local(workdir) and (seeds := sorted(Path(workdir).glob("seed_*"))):
        raise FileNotFoundError(
            f"{path} holds the runs of several seeds: choose one, such as {seeds[0]}"
        )
    what = "has no checkpoints" if workdir.is_dir() else "does not exist"
    raise FileNotFoundError(f"{path} {what}: expected the --workdir of experiments/train.py")
