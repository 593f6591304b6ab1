"""The checkpoints of a run: Orbax, asynchronous, atomic, each complete and with checksums.

A work directory holds `config.json` and `checkpoints/STEP/`, each with three items: `model`
(parameters and running statistics), `optimizer` (its state and the step) and `about` (the config,
the metrics history and the circumstances, JSON). Nothing else is needed to resume or to evaluate.
"""

import contextlib
import hashlib
import json
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, cast

import jax
import ml_collections
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import nnx

from capsjax import _files
from capsjax.models.model import Model
from capsjax.runs import about, release
from capsjax.runs.about import About, Checkpoint
from capsjax.runs.hosts import from_first_host
from capsjax.training.build import abstract_model
from capsjax.training.state import TrainState, split

Which = Literal["best", "latest"] | int
FOLDER = "checkpoints"
SUMS = "sha256.json"  # in each checkpoint, beside its items


def restore(
    path: str | os.PathLike[str], which: Which = "best"
) -> tuple[Model, ml_collections.ConfigDict]:
    """Restores the trained network of a run and its config, from the checkpoint alone.

    Args:
      path: the run's work directory, or a .safetensors file of experiments/release.py; local or any
        address of etils.epath, a file at http(s) addresses too.
      which: "best" by validation accuracy (the latest where nothing was held out), "latest", or
        the number of a step; a released file holds one.

    Raises FileNotFoundError or ValueError if there is none, no such step, or it is damaged.
    """
    checkpoint = read(path, which)
    return checkpoint.model, checkpoint.config


def read(path: str | os.PathLike[str], which: Which = "best") -> Checkpoint:
    """Reads what `restore` returns, with the history and the step."""
    if which not in ("best", "latest") and not isinstance(which, Integral):
        raise ValueError(f'which must be "best", "latest" or a step number, got {which!r}')
    if release.is_one(path):
        return release.read(path, which)
    workdir = _files.absolute(path)
    step = _choose(workdir, which)
    directory = workdir / FOLDER / str(step)
    config, history, _ = _about(directory)
    graphdef, params, rest = split(abstract_model(config))
    like = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), {"params": params, "rest": rest})
    with ocp.StandardCheckpointer() as checkpointer:
        variables = checkpointer.restore(directory / "model", like)
    variables = jax.tree.map(jax.numpy.asarray, variables)
    model = nnx.merge(graphdef, variables["params"], variables["rest"])
    return Checkpoint(cast(Model, model), config, history, step)


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
        return _newest_intact(workdir, [int(which)])
    latest = _newest_intact(workdir, steps)
    if which == "latest":
        return latest
    history = _about(workdir / FOLDER / str(latest)).history
    best = _best(steps, history.validation_accuracy())
    return latest if best is None else _newest_intact(workdir, [best])


def _about(directory: epath.Path) -> About:
    return about.parse(json.loads((directory / "about" / "metadata").read_text()), directory)


def _newest_intact(workdir: epath.Path, steps: Sequence[int]) -> int:
    """Returns the first step as it was saved; Orbax alone would restore a flipped bit."""
    problems: list[str] = []
    for step in steps:
        directory = workdir / FOLDER / str(step)
        wrong = _damage(directory)
        if wrong is None:
            if problems:
                said = f"{'; '.join(problems)}; going back to step {step}"
                warnings.warn(said, RuntimeWarning, stacklevel=4)
            return step
        problems.append(f"the checkpoint {directory} cannot be used: {wrong}")
    raise ValueError("; ".join(problems) + ". Nothing was changed")


def _best(steps: Sequence[int], accuracy: Mapping[int, float]) -> int | None:
    """Returns the step of the highest accuracy, the latest of equal ones, or None."""
    measured = [step for step in steps if step in accuracy]
    return max(measured, key=lambda step: (accuracy[step], step), default=None)


class Checkpoints(contextlib.AbstractContextManager):
    """The checkpoints of a run; leaving the block waits for saves under way.

    With several hosts all of them make every call; host 0 writes, as the state is whole on each.
    """

    def __init__(self, workdir: epath.Path, *, keep: int):
        self._workdir, self._directory, self._keep = workdir, workdir / FOLDER, keep
        self._saving: int | None = None
        self._accuracy: Mapping[int, float] = {}  # by step, of the whole run
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                async_options=ocp.AsyncOptions(post_finalization_callback=self._seal_saved),
                preservation_policy=self,
            ),
        )

    def __exit__(self, *exception: object) -> None:
        self._manager.close()

    def latest_step(self) -> int | None:
        return self._manager.latest_step()

    def save(self, state: TrainState, about: About) -> None:
        """Begins to save, once a step; returns when the buffers of `state` may be donated."""
        step = int(state.step)
        if step == self.latest_step():
            return
        # Copied to the host: the device's memory is donated to the next dispatch.
        items = _items(jax.tree.map(lambda x: np.array(x, copy=True), state))
        args = {name: ocp.args.StandardSave(item) for name, item in items.items()}
        args["about"] = ocp.args.JsonSave(about.to_json())
        self._manager.wait_until_finished()
        self._accuracy, self._saving = about.history.validation_accuracy(), step
        self._manager.save(step, args=ocp.args.Composite(**args))

    def restore(self, like: TrainState) -> tuple[TrainState, About]:
        """Returns the newest intact state, of the shapes of `like`, on the host."""
        items = _items(jax.tree.map(np.asarray, like))
        args = {name: ocp.args.StandardRestore(item) for name, item in items.items()}
        step = from_first_host(self._set_damaged_aside)
        self._manager.reload()
        saved = self._manager.restore(step, args=ocp.args.Composite(**args))
        model, rest = saved.model, saved.optimizer
        state = TrainState(rest["step"], model["params"], model["rest"], rest["state"])
        return state, _about(self._directory / str(step))

    def wait(self) -> None:
        self._manager.wait_until_finished()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Tells Orbax which checkpoints to keep: the latest, and the best by validation accuracy.

        Orbax's own policy for the best knows the accuracies that its process has saved, and in a
        resumed run no others: it would delete the best checkpoint of those before.
        """
        steps = [checkpoint.step for checkpoint in checkpoints]
        kept = {*steps[-self._keep :], _best(steps, self._accuracy)}
        return [step in kept for step in steps]

    def _seal_saved(self) -> None:
        """Seals a save. Orbax calls it, in its own thread, when all is written but not committed.

        Until then the name of a local directory has an ending; an object store has no renaming,
        and there a file that Orbax writes last makes the checkpoint one.
        """
        if _files.is_local(self._directory):
            for directory in self._directory.glob(f"{self._saving}.*"):
                _seal(directory)
        else:
            _seal(self._directory / str(self._saving))

    def _set_damaged_aside(self) -> int:
        """Returns the newest intact step; moves damaged ones out of the way of new saves."""
        steps = finished(self._workdir)
        intact = _newest_intact(self._workdir, steps)
        for step in (newer for newer in steps if newer > intact):
            damaged = self._workdir / f"damaged-{step}-{uuid.uuid4().hex[:8]}"
            (self._directory / str(step)).rename(damaged)
        return intact


def _items(state: TrainState) -> dict[str, dict[str, Any]]:
    return {
        "model": {"params": state.params, "rest": state.rest},
        "optimizer": {"step": state.step, "state": state.opt_state},
    }


def _seal(directory: epath.Path) -> None:
    """Writes the checksums of all files in `directory` into it, and syncs all of it to disk."""
    sums = _checksums(directory)
    (directory / SUMS).write_text(json.dumps(sums, indent=1))
    if _files.is_local(directory):
        names = [*sums, SUMS]
        folders = {parent for name in names for parent in epath.Path(name).parents}
        for name in [*names, *folders]:
            _files.sync(directory / name)


def _damage(directory: epath.Path) -> str | None:
    """Says what is wrong with a sealed directory; None if nothing changed since it was sealed."""
    try:
        sums = json.loads((directory / SUMS).read_text())
    except (FileNotFoundError, ValueError):
        return "it has no checksums: its save was interrupted, or it was not made by capsjax"
    found = _checksums(directory)
    if differing := sorted(sums.keys() ^ found.keys()):
        what = "is missing" if differing[0] in sums else "does not belong to this checkpoint"
        return f"{differing[0]} {what}"
    damaged = [name for name in found if found[name] != sums[name]]
    return f"{damaged[0]} is damaged: its contents are not what was saved" if damaged else None


def _checksums(directory: epath.Path) -> dict[str, str]:
    """Returns the SHA-256 of the items' files, which are in folders; those beside are Orbax's."""
    sums = {}
    for name in sorted(name for name in _relative_paths(directory) if "/" in name):
        with (directory / name).open("rb") as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def _relative_paths(directory: epath.Path) -> Iterator[str]:
    # Not with `walk` or `glob`, which epath does not offer alike for all file systems.
    for path in directory.iterdir():
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in _relative_paths(path))
        else:
            yield path.name
