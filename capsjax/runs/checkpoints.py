"""Checkpoints of a run: Orbax, asynchronous, atomic, complete.

A work directory holds `config.json` and `checkpoints/STEP/`, each with three items: `model`
(parameters and running statistics; their moving averages where the run has them), `optimizer` (its
state, the step and then the parameters and statistics themselves) and `about` (the config, the
metrics history and the circumstances, JSON). Nothing else is needed to resume or to evaluate.
"""

import hashlib
import json
import logging
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import ml_collections
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx
from orbax.checkpoint import checkpoint_managers

from capsjax import _files, models
from capsjax.models import paths
from capsjax.runs import release
from capsjax.runs.circumstances import Circumstances
from capsjax.runs.history import History
from capsjax.runs.hosts import from_first_host
from capsjax.training import config as configs
from capsjax.training.build import build_model
from capsjax.training.state import TrainState, split

Which = Literal["best", "latest"] | int
# Beside the files of a checkpoint: Orbax alone would restore a flipped bit in silence.
SUMS = "sha256.json"
BLOCK = 1 << 20


class Checkpoint(NamedTuple):
    """One restored model.

    Attributes:
      model: the network, parameters in place.
      config: of the run; `config.task` holds `input_shape` and `class_names`.
      history: the run's metrics up to this step.
      step: number of training steps behind it.
    """

    model: nnx.Module
    config: ml_collections.ConfigDict
    history: History
    step: int


class _KeepBest(checkpoint_managers.PreservationPolicy):
    """Keeps the checkpoint of the best validation accuracy.

    Orbax's own policy knows the accuracies that its process has saved, and in a resumed run no
    others: it would delete the best checkpoint of those before.
    """

    def __init__(self) -> None:
        self.accuracy: Mapping[int, float] = {}  # by step, of the whole run

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: checkpoint_managers.PreservationContext
    ) -> list[bool]:
        best = _best([checkpoint.step for checkpoint in checkpoints], self.accuracy)
        return [checkpoint.step == best for checkpoint in checkpoints]


def _best(steps: Sequence[int], accuracy: Mapping[int, float]) -> int | None:
    """The step of the highest accuracy, the latest of equal ones; None if none was measured."""
    measured = [step for step in steps if step in accuracy]
    return max(measured, key=lambda step: (accuracy[step], step), default=None)


class Checkpoints:
    """The checkpoints of one work directory, written during training.

    Used as a context manager; leaving it waits for saves under way. With several hosts all of them
    make every call; host 0 writes, as the state is whole on each.
    """

    def __init__(self, workdir: epath.Path, *, keep: int):
        self._workdir = workdir
        self._directory = self._workdir / "checkpoints"
        self._saving: int | None = None
        self._keep_best = _KeepBest()
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                async_options=ocp.AsyncOptions(post_finalization_callback=self._seal_saved),
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(
                    [checkpoint_managers.LatestN(keep), self._keep_best]
                ),
            ),
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self._manager.close()

    def latest_step(self) -> int | None:
        """The step of the newest checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(
        self,
        state: TrainState,
        config: ml_collections.ConfigDict,
        history: History,
        circumstances: Circumstances,
    ) -> None:
        """Begins to save, once a step; returns when the buffers of `state` may be donated."""
        step = int(state.step)
        if step == self.latest_step():
            return
        # Copied to the host: the device's memory is donated to the next dispatch.
        model, optimizer = _split(jax.tree.map(lambda x: np.array(x, copy=True), state))
        self._keep_best.accuracy = history.validation_accuracy()
        self._manager.wait_until_finished()
        self._saving = step
        self._manager.save(
            step,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave(model),
                optimizer=ocp.args.StandardSave(optimizer),
                about=ocp.args.JsonSave(
                    {
                        "config": configs.to_json(config),
                        "history": history.to_json(),
                        "circumstances": circumstances,
                    }
                ),
            ),
        )

    def restore(
        self, like: TrainState, config: ml_collections.ConfigDict
    ) -> tuple[TrainState, History, Circumstances]:
        """The newest good state, on the host, the history up to it, and how it was trained.

        Args:
          like: gives the shapes.
          config: of the run.

        Raises:
          ValueError: no checkpoint can be read, or the newest is of another config.
        """
        model, optimizer = _split(jax.tree.map(np.asarray, like))
        step = from_first_host(self._newest_good)
        self._manager.reload()
        directory = self._directory / str(step)
        with _reading(directory):
            about = _about(self._manager, step)
            trained = configs.from_json(about["config"])
        _check_same(directory, trained, config)
        with _reading(directory):
            items = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore(model),
                    optimizer=ocp.args.StandardRestore(optimizer),
                ),
            )
            history = History(**about["history"])
        state = _joined(items.model, items.optimizer)
        return state, history, about.get("circumstances", {})

    def wait(self) -> None:
        """Returns when no save is under way."""
        self._manager.wait_until_finished()

    def _seal_saved(self) -> None:
        """Called by Orbax, in its own thread, when all is written, just before it commits.

        Until then the name of a local directory has an ending; an object store has no renaming,
        and there a file that Orbax writes last makes the checkpoint one.
        """
        if _files.is_local(self._directory):
            # Not epath's glob, which takes brackets in the names of folders for its own.
            for directory in Path(self._directory).glob(f"{self._saving}.*"):
                _seal(epath.Path(directory))
        else:
            _seal(self._directory / str(self._saving))

    def _newest_good(self) -> int:
        """The newest intact step; damaged ones after it are moved out of the way of new saves."""
        steps = sorted(self._manager.all_steps(), reverse=True)
        good = _first_good(self._directory, steps)
        for step in (newer for newer in steps if newer > good):
            aside = self._workdir / "damaged" / f"{step}-{uuid.uuid4().hex[:8]}"
            _files.move(self._directory / str(step), aside)
        return good


def latest_step(workdir: epath.Path) -> int | None:
    """The step of the newest checkpoint in a work directory; None if there is none yet."""
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        return None
    with _opened(directory) as manager:
        return manager.latest_step()


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
        # What is gone was a checkpoint that a run that goes on has deleted since.
        if not is_step and os.path.lexists(path):
            misspelt = "a directory whose name is not spelt as a step's"
            what = "a link" if path.is_symlink() else "a file" if path.is_file() else misspelt
            raise ValueError(
                f"{path} is {what}, not a checkpoint of this run: remove it. Nothing was changed"
            )


@contextmanager
def _opened(directory: epath.Path) -> Iterator[ocp.CheckpointManager]:
    """The manager of a directory in which nothing is to be changed."""
    # Orbax warns of each option that read_only changes, and in any case that it was given.
    logger = logging.getLogger("absl")
    logger.addFilter(_is_not_about_read_only)
    try:
        options = ocp.CheckpointManagerOptions(
            read_only=True, save_interval_steps=0, create=False, cleanup_tmp_directories=False
        )
        manager = ocp.CheckpointManager(directory, options=options)
    finally:
        logger.removeFilter(_is_not_about_read_only)
    with manager:
        yield manager


def _is_not_about_read_only(record: logging.LogRecord) -> bool:
    return "read only" not in record.getMessage()


def _split(state: TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    params, rest = state.evaluated
    optimizer = {"step": state.step, "state": state.opt_state}
    if state.average is not None:
        optimizer["raw"] = {"params": state.params, "rest": state.rest}
    return {"params": params, "rest": rest}, optimizer


def _joined(model: dict[str, Any], optimizer: dict[str, Any]) -> TrainState:
    """The inverse of `_split`."""
    raw = optimizer.get("raw", model)
    average = (model["params"], model["rest"]) if "raw" in optimizer else None
    return TrainState(optimizer["step"], raw["params"], raw["rest"], optimizer["state"], average)


def restore(
    path: str | os.PathLike[str], which: Which = "best"
) -> tuple[nnx.Module, ml_collections.ConfigDict]:
    """The trained network of a run and its config, from the checkpoint alone.

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
    """What `restore` returns, with the history and the step."""
    if isinstance(which, Integral):
        which = int(which)
    elif which not in ("best", "latest"):
        raise ValueError(f'which must be "best", "latest" or a step number, got {which!r}')
    if release.is_one(path):
        return _released(path, which)
    workdir = _files.absolute(path)
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        what = "has no checkpoints" if workdir.is_dir() else "does not exist"
        local = _files.is_local(workdir)
        seeds = sorted(p.name for p in Path(workdir).glob("seed_*")) if local else []
        if seeds:
            raise FileNotFoundError(
                f"{path} holds the runs of several seeds: choose one, such as {workdir / seeds[0]}"
            )
        raise FileNotFoundError(f"{path} {what}: expected the --workdir of experiments/train.py")
    check_names(directory)
    with _opened(directory) as manager:
        steps = manager.all_steps()
        if not steps:
            raise FileNotFoundError(f"{directory} holds no finished checkpoint")
        if isinstance(which, int) and which not in steps:
            known = ", ".join(map(str, sorted(steps)))
            raise ValueError(f"there is no step {which} in {directory}, only {known}")
        step = _first_good(directory, _candidates(manager, directory, steps, which))
        with _reading(directory / str(step)):
            about = _about(manager, step)
            config = configs.from_json(about["config"])
            history = History(**about["history"])
        models.lookup(config.model.name)  # a network of one's own has to be registered first
        with _reading(directory / str(step)):
            return Checkpoint(_model(manager, step, config), config, history, step)


def _released(path: str | os.PathLike[str], which: Which) -> Checkpoint:
    """What `read` returns, from a file of `release.write`."""
    tensors, about = release.read(path)
    if isinstance(which, int) and which != about["step"]:
        raise ValueError(f"there is no step {which} in {path}, only {about['step']}")
    config = configs.from_json(about["config"])
    models.lookup(config.model.name)  # a network of one's own has to be registered first
    abstract = nnx.eval_shape(lambda: build_model(config))
    abstract.eval()
    graphdef, state = nnx.split(abstract)
    expected = {name: (x.shape, x.dtype) for name, x in paths.by_path(state).items()}
    found = {name: (x.shape, x.dtype) for name, x in tensors.items()}
    names = sorted(expected.keys() | found.keys())
    if wrong := [name for name in names if expected.get(name) != found.get(name)]:
        there, wanted = (_described(found, wrong[0]), _described(expected, wrong[0]))
        raise ValueError(
            f"{path} does not hold the variables of {config.model.name}: {wrong[0]} is {there}, "
            f"expected {wanted}. It was probably made with another version of capsjax; its card "
            "names the commit"
        )
    state = paths.replaced(state, {name: jax.numpy.asarray(x) for name, x in tensors.items()})
    return Checkpoint(
        nnx.merge(graphdef, state), config, History(**about["history"]), about["step"]
    )


def _described(variables: Mapping[str, tuple[tuple[int, ...], Any]], name: str) -> str:
    if name not in variables:
        return "missing"
    shape, dtype = variables[name]
    return f"{np.dtype(dtype).name} of shape {shape}"


@contextmanager
def _reading(directory: os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Orbax and TensorStore raise all kinds for damaged files
        first_line = str(error).partition("\n")[0][:200]
        raise ValueError(
            f"the checkpoint in {os.fspath(directory)} cannot be read: it is damaged or "
            f"belongs to another run ({type(error).__name__}: {first_line}). Nothing was changed"
        ) from error


def _about(manager: ocp.CheckpointManager, step: int) -> dict[str, Any]:
    return manager.restore(step, args=ocp.args.Composite(about=ocp.args.JsonRestore())).about


def _check_same(
    directory: epath.Path, trained: ml_collections.ConfigDict, config: ml_collections.ConfigDict
) -> None:
    """Raises ValueError if a checkpoint was not trained with `config`."""
    lines = configs.conflicts(trained, config)
    # The folder of the run that it began with may have moved; it is not read again.
    lines = [line for line in lines if not line.startswith("init_from:")]
    if lines:
        raise ValueError(
            f"the checkpoint in {os.fspath(directory)} was trained with another config than "
            "config.json has; was that file changed? Trained with → config.json has:\n  "
            + "\n  ".join(lines)
            + "\nNothing was changed"
        )


def _candidates(
    manager: ocp.CheckpointManager, directory: epath.Path, steps: Sequence[int], which: Which
) -> Sequence[int]:
    """The steps that would do, first choice first."""
    newest_first = sorted(steps, reverse=True)
    if which == "latest":
        return newest_first
    if which == "best":
        latest = _first_good(directory, newest_first)
        accuracy = History(**_about(manager, latest)["history"]).validation_accuracy()
        best, best_kept = _best([*accuracy], accuracy), _best(steps, accuracy)
        if best is None or best_kept is None:
            return newest_first
        if best_kept != best:
            warnings.warn(
                f"{directory}: the checkpoint of step {best}, which had the best validation "
                f"accuracy ({accuracy[best]:.2%}), is gone; taking that of step {best_kept} "
                f"({accuracy[best_kept]:.2%})",
                RuntimeWarning,
                stacklevel=3,
            )
        return [best_kept]
    return [which]


def _first_good(directory: epath.Path, steps: Sequence[int]) -> int:
    """The first step whose files are as they were saved; those before it are warned about."""
    problems: list[str] = []
    for step in steps:
        wrong = _problem(directory / str(step))
        if wrong is None:
            for message in problems:
                warnings.warn(f"{message}; going back to step {step}", RuntimeWarning, stacklevel=4)
            return step
        problems.append(f"the checkpoint {directory / str(step)} cannot be used: {wrong}")
    raise ValueError("; ".join(problems) + ". Nothing was changed")


def _model(
    manager: ocp.CheckpointManager, step: int, config: ml_collections.ConfigDict
) -> nnx.Module:
    abstract = nnx.eval_shape(lambda: build_model(config))
    abstract.eval()
    graphdef, params, rest = split(abstract)
    like = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), {"params": params, "rest": rest})
    items = manager.restore(step, args=ocp.args.Composite(model=ocp.args.StandardRestore(like)))
    variables = jax.tree.map(jax.numpy.asarray, items.model)
    return nnx.merge(graphdef, variables["params"], variables["rest"])


def _seal(directory: epath.Path) -> None:
    """Writes the checksums of all files in `directory` into it, and syncs all of it to disk."""
    sums = {name: _sum(directory / name) for name in _items(directory)}
    (directory / SUMS).write_text(json.dumps(sums, indent=1))
    names = [*sums, SUMS]
    folders = {parent for name in names for parent in epath.Path(name).parents}
    for name in [*names, *folders]:
        _files.sync(directory / name)


def _problem(directory: epath.Path) -> str | None:
    """What is wrong with a sealed directory; None if nothing changed since it was sealed."""
    try:
        sums = json.loads((directory / SUMS).read_text())
    except FileNotFoundError:
        return "it has no checksums: its save was interrupted, or it was not made by capsjax"
    except (OSError, ValueError, RecursionError) as error:
        return f"its checksums cannot be read ({error})"
    if not isinstance(sums, dict):
        return (
            f"its checksums are a {type(sums).__name__}, expected an object with one for each file"
        )
    files = set(_items(directory))
    if missing := sorted(sums.keys() - files):
        return f"{missing[0]} is missing"
    if surplus := sorted(files - sums.keys()):
        return f"{surplus[0]} does not belong to this checkpoint"
    for name, expected in sums.items():
        if _sum(directory / name) != expected:
            return f"{name} is damaged: its contents are not what was saved"
    return None


def _items(directory: epath.Path) -> list[str]:
    """The files of the items, which are in folders; the files beside them are Orbax's markers."""
    return sorted(name for name in _files.files(directory) if "/" in name)


def _sum(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
