"""Saves the checkpoints of a run: Orbax, asynchronous, atomic, complete.

A work directory holds `config.json` and `checkpoints/STEP/`, each with three items: `model`
(parameters and running statistics), `optimizer` (its state and the step) and `about` (the config,
the metrics history and the circumstances, JSON). Nothing else is needed to resume or to evaluate.
"""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import ml_collections
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers

from capsjax import _files, _ledger
from capsjax.runs.about import About
from capsjax.runs.hosts import from_first_host
from capsjax.runs.verifying import best_step, description, finished, first_good, reading
from capsjax.training import config as configs
from capsjax.training.state import TrainState


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
        best = best_step([checkpoint.step for checkpoint in checkpoints], self.accuracy)
        return [checkpoint.step == best for checkpoint in checkpoints]


class Checkpoints:
    """The checkpoints of one work directory, written during training.

    Used as a context manager; leaving it waits for saves under way. With several hosts all of them
    make every call; host 0 writes, as the state is whole on each.
    """

    def __init__(self, workdir: epath.Path, *, keep: int):
        self._workdir, self._directory = workdir, workdir / "checkpoints"
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
        """Returns the step of the newest checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(self, state: TrainState, about: About) -> None:
        """Begins to save, once a step; returns when the buffers of `state` may be donated."""
        step = int(state.step)
        if step == self.latest_step():
            return
        # Copied to the host: the device's memory is donated to the next dispatch.
        model, optimizer = _split(jax.tree.map(lambda x: np.array(x, copy=True), state))
        self._keep_best.accuracy = about.history.validation_accuracy()
        self._manager.wait_until_finished()
        self._saving = step
        self._manager.save(
            step,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave(model),
                optimizer=ocp.args.StandardSave(optimizer),
                about=ocp.args.JsonSave(about.to_json()),
            ),
        )

    def restore(
        self, like: TrainState, config: ml_collections.ConfigDict
    ) -> tuple[TrainState, About]:
        """Returns the newest good state, on the host, and what is known about it.

        `like` gives the shapes. Raises ValueError if no checkpoint can be read, or if the newest
        was not trained with `config`.
        """
        model, optimizer = _split(jax.tree.map(np.asarray, like))
        step = from_first_host(self._newest_good)
        self._manager.reload()
        directory = self._directory / str(step)
        saved = description(directory)
        # The folder of the run that it began with may have moved; it is not read again.
        lines = configs.conflicts(saved.config, config)
        if lines := [line for line in lines if not line.startswith("init_from:")]:
            raise ValueError(
                f"the checkpoint in {directory} was trained with another config than "
                "config.json has; was that file changed? Trained with → config.json has:\n  "
                + "\n  ".join(lines)
                + "\nNothing was changed"
            )
        with reading(directory):
            items = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore(model),
                    optimizer=ocp.args.StandardRestore(optimizer),
                ),
            )
        variables, rest = items.model, items.optimizer
        state = TrainState(rest["step"], variables["params"], variables["rest"], rest["state"])
        return state, saved

    def wait(self) -> None:
        """Returns when no save is under way."""
        self._manager.wait_until_finished()

    def _seal_saved(self) -> None:
        """Seals a save. Orbax calls it, in its own thread, when all is written but not committed.

        Until then the name of a local directory has an ending; an object store has no renaming,
        and there a file that Orbax writes last makes the checkpoint one.
        """
        if _files.is_local(self._directory):
            # Not epath's glob, which takes brackets in the names of folders for its own.
            for directory in Path(self._directory).glob(f"{self._saving}.*"):
                _ledger.seal(epath.Path(directory))
        else:
            _ledger.seal(self._directory / str(self._saving))

    def _newest_good(self) -> int:
        """Returns the newest intact step; moves damaged ones out of the way of new saves."""
        steps = finished(self._directory)
        good = first_good(self._directory, steps)
        for step in (newer for newer in steps if newer > good):
            aside = self._workdir / "damaged" / f"{step}-{uuid.uuid4().hex[:8]}"
            _files.move(self._directory / str(step), aside)
        return good


def _split(state: TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the items `model` and `optimizer`."""
    variables = {"params": state.params, "rest": state.rest}
    return variables, {"step": state.step, "state": state.opt_state}
