"""A run that is killed again and again, with SIGKILL at random moments, ends in the same bits."""

import contextlib
import multiprocessing
import os
import random
import time

import jax
import numpy as np
import pytest
from absl import logging

from capsjax.runs import loop
from tests.tiny import assert_same, tiny_config

INTERVAL = 7  # steps from one checkpoint to the next
# Its children begin with JAX imported, but each starts its own runtime.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["capsjax.runs.loop", "sklearn.datasets"])


def _config(npz, epochs):
    config = tiny_config(npz)
    config.training.epochs = epochs
    return config


def _train(npz, directory, epochs, step):
    """In a process of its own; `step` is shared memory that says where it is."""
    logging.set_verbosity(logging.ERROR)  # Orbax reports what was killed
    advance = loop.Run._advance

    def tell_and_advance(run, count):
        step.value = run.step
        return advance(run, count)

    loop.Run._advance = tell_and_advance
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        loop.train(_config(npz, epochs), directory)


class Training:
    """One process that trains."""

    def __init__(self, npz, directory, epochs):
        # Without a lock, which a killed process would keep.
        self._step = CONTEXT.Value("q", -1, lock=False)
        self.process = CONTEXT.Process(target=_train, args=(npz, directory, epochs, self._step))
        self.process.start()

    def begun_at(self):
        """The step that it begins at."""
        while self._step.value < 0:
            assert self.process.is_alive()
            time.sleep(0.001)
        return self._step.value

    def end(self, kill=False):
        """The step that it came to, or was killed at."""
        if kill:
            self.process.kill()
        self.process.join()
        assert self.process.exitcode <= 0
        return self._step.value


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "epochs"), [(2, 6), (30, 200)])
def test_killed_runs_end_in_the_bits_of_the_uninterrupted(npz, tmp_path, kills, epochs):
    draw = random.Random(kills)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    training = Training(npz, whole, epochs)
    training.begun_at()
    began = time.monotonic()
    training.end()
    # On average, all kills together leave some of the training for the end.
    longest = 1.4 * (time.monotonic() - began) / max(kills, 4)

    step, lost, done = 0, 0, 0
    for kill in range(kills):
        training = Training(npz, killed, epochs)
        if kill % 6 == 5:
            time.sleep(draw.uniform(0, 2))  # anywhere, in its start too
        else:
            # What was done at a kill and is not in the checkpoint has to be done again.
            lost = max(lost, step - training.begun_at())
            time.sleep(draw.uniform(0, longest))
        step = max(step, training.end(kill=True))
        done += training.process.exitcode < 0
        if not training.process.exitcode:
            break  # it was over first: moments are drawn by the clock
    else:
        training = Training(npz, killed, epochs)
        lost = max(lost, step - training.begun_at())
        training.end()
    assert done >= kills / 2
    assert lost <= 2 * INTERVAL  # one interval, and the save in flight
    assert not list((killed / "checkpoints").glob("*.orbax-checkpoint-tmp*"))
    # Both are finished: this restores.
    one = jax.devices()[:1]
    results = [loop.train(_config(npz, epochs), d, devices=one) for d in (whole, killed)]
    assert_same(*results)
    assert int(np.asarray(results[0].state.step)) == INTERVAL * epochs
    assert (whole / "metrics.jsonl").read_bytes() == (killed / "metrics.jsonl").read_bytes()
