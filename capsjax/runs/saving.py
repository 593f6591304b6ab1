"""Saves checkpoints while a run trains: Orbax, asynchronous and atomic; resumes from the newest."""

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from capsjax import _files
from capsjax.runs.about import About
from capsjax.runs.checkpoints import FOLDER, about_of, best_first, finished, reader
from capsjax.runs.hosts import from_first_host, is_first_host, together
from capsjax.runs.integrity import newest_intact, seal
from capsjax.training.state import TrainState


class Checkpoints(contextlib.AbstractContextManager):
    """The checkpoints of a run; leaving the block waits for saves under way.

    With several hosts all of them make every call. Host 0 alone writes, as the state is whole on
    each, and all raise what it raises; every host reads.
    """

    def __init__(self, workdir: epath.Path, *, keep: int, steps_per_epoch: int):
        self._directory, self._keep, self._per_epoch = workdir / FOLDER, keep, steps_per_epoch
        self._saving: int | None = None
        self._accuracy: Mapping[int, float] = {}  # by step, of the whole run
        self._manager: ocp.CheckpointManager  # host 0 has one
        from_first_host(self._open)

    def _open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                async_options=ocp.AsyncOptions(post_finalization_callback=self._seal_saved),
                preservation_policy=self,
                cleanup_tmp_directories=True,  # of saves that were killed
                create=False,
                multiprocessing_options=alone,
            ),
        )

    def __exit__(self, *exception: object) -> None:
        if is_first_host():
            self._manager.close()

    def latest_step(self) -> int | None:
        return from_first_host(lambda: self._manager.latest_step())

    def save(self, state: TrainState, about: About) -> None:
        """Begins to save, once per step; returns when the buffers of `state` may be donated."""
        from_first_host(lambda: self._begin(state, about))

    def _begin(self, state: TrainState, about: About) -> None:
        step = int(state.step)
        if step == self._manager.latest_step():
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
        directory = self._directory / str(from_first_host(self._set_damaged_aside))

        def read() -> tuple[dict[str, Any], About]:
            with reader() as checkpointer:
                saved = {n: checkpointer.restore(directory / n, x) for n, x in items.items()}
            return saved, about_of(directory)

        saved, about = together(read)
        model, rest = saved["model"], saved["optimizer"]
        return TrainState(rest["step"], model["params"], model["rest"], rest["state"]), about

    def wait(self) -> None:
        from_first_host(lambda: self._manager.wait_until_finished())

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Tells Orbax what to keep: the newest, the latest epochs and the best by validation.

        What a signal saved within an epoch goes with the next save. Orbax's own policy for the best
        knows only the accuracies of its process: in a resumed run it would delete an earlier best.
        """
        steps = [checkpoint.step for checkpoint in checkpoints]
        epochs = [step for step in steps if step % self._per_epoch == 0]
        kept = {steps[-1], *epochs[-self._keep :], *best_first(steps, self._accuracy)[:1]}
        return [step in kept for step in steps]

    def _seal_saved(self) -> None:
        """Seals a save. Orbax calls it, in its own thread, when all is written but not committed.

        Until then a local directory's name has a suffix, and an object store lacks the last file.
        """
        if _files.is_local(self._directory):
            for directory in self._directory.glob(f"{self._saving}.*"):
                seal(directory)
        else:
            seal(self._directory / str(self._saving))

    def _set_damaged_aside(self) -> int:
        """Returns the newest intact step; moves damaged ones out of the way of new saves."""
        steps = finished(self._directory.parent)
        intact = newest_intact(self._directory, steps)
        for step in (newer for newer in steps if newer > intact):
            damaged = self._directory.parent / f"damaged-{step}-{uuid.uuid4().hex[:8]}"
            (self._directory / str(step)).rename(damaged)
        self._manager.reload()
        return intact


def _items(state: TrainState) -> dict[str, dict[str, Any]]:
    return {
        "model": {"params": state.params, "rest": state.rest},
        "optimizer": {"step": state.step, "state": state.opt_state},
    }
