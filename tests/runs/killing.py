"""Kills a short run again and again with SIGKILL, and resumes it each time.

A run that was killed must end in the bits of one that was not.
"""

import contextlib
import multiprocessing
import os
import random
import re
import time
from typing import NamedTuple

from absl import logging

from tests.tiny import tiny_config

INTERVAL = 7  # steps from one checkpoint to the next
# Its children begin with JAX imported, but each starts its own runtime.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["capsjax.runs.loop", "sklearn.datasets"])


class Faults(NamedTuple):
    """What happened.

    `killed` counts the kills by what the run was doing, `saves` those with a save in the
    background, `resumes` the starts from a checkpoint; work is lost in steps.
    """

    kills: int
    resumes: int
    killed: dict[str, int]
    saves: int
    longest_loss: int


def _train(npz, directory, epochs, doing):
    """In a process of its own; `doing` is shared memory that says what it does."""
    from capsjax.runs import loop

    logging.set_verbosity(logging.ERROR)  # Orbax reports what was killed

    def telling(method, text):
        """`method`, which first says what it does."""

        def tell_and_call(self, *args, **options):
            doing.value = text.format(step=self.step).encode()
            return method(self, *args, **options)

        return tell_and_call

    loop.Run._compile = telling(loop.Run._compile, "starting")
    loop.Run._advance = telling(loop.Run._advance, "training at step {step}")
    loop.Run._end_epoch = telling(loop.Run._end_epoch, "validating at step {step}")
    loop.Run.save = telling(loop.Run.save, "saving the checkpoint of step {step}")
    config = tiny_config(npz)
    config.training.epochs = epochs
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        loop.train(config, directory)


class Run:
    """One process that trains in `directory`."""

    def __init__(self, npz, directory, epochs):
        self._directory, self._began = directory, time.time()
        # Without a lock, which a killed process would keep.
        self._doing = CONTEXT.Array("c", 100, lock=False)
        self._process = CONTEXT.Process(target=_train, args=(npz, directory, epochs, self._doing))
        self._process.start()

    @property
    def doing(self):
        return self._doing.value.decode() or "starting"

    def step(self):
        """The last one that it told of, None before the first."""
        found = re.search(r"step (\d+)", self.doing)
        return int(found[1]) if found else None

    def wait_for_step(self):
        """The step that it begins at."""
        while (step := self.step()) is None:
            if not self._process.is_alive():
                raise RuntimeError(f"the run ended with status {self._process.exitcode}")
            time.sleep(0.001)
        return step

    def kill(self):
        """Returns whether it was still alive."""
        self._process.kill()
        self._process.join()
        return self._process.exitcode < 0

    def wait(self):
        self._process.join()
        if self._process.exitcode:
            raise RuntimeError(f"the run ended with status {self._process.exitcode}")

    def phase(self):
        """What it does, saves in the background aside."""
        return self.doing.split()[0]

    def save_under_way(self):
        """Whether it began one that is not committed; a killed one stays for a while."""
        begun = (self._directory / "checkpoints").glob("*.orbax-checkpoint-tmp*")
        return any(path.stat().st_mtime > self._began for path in begun)


def kill_and_resume(npz, directory, *, kills, epochs, seed, seconds):
    """Trains to the end, with up to `kills` kills on the way.

    The uninterrupted run takes `seconds`.
    """
    draw = random.Random(seed)
    # On average, all kills together leave some of the training for the end.
    longest = 1.4 * seconds / max(kills, 4)
    done, step, longest_loss, resumes, saves = 0, 0, 0, 0, 0
    killed: dict[str, int] = {}
    for kill in range(kills):
        run = Run(npz, directory, epochs)
        if kill % 6 == 5:
            time.sleep(draw.uniform(0, 2))  # anywhere, in its start too
        else:
            resumed = run.wait_for_step()
            # What was done at a kill and is not in the checkpoint has to be done again.
            longest_loss, resumes = max(longest_loss, step - resumed), resumes + (resumed > 0)
            step = resumed
            time.sleep(draw.uniform(0, longest))
        if not run.kill():
            run.wait()  # it was over first: moments are drawn by the clock
            return Faults(done, resumes, killed, saves, longest_loss)
        done += 1
        step = max(step, run.step() or 0)
        killed[run.phase()] = killed.get(run.phase(), 0) + 1
        saves += run.save_under_way()
        print(f"kill {kill + 1}: {run.doing} ({run.phase()})")
    run = Run(npz, directory, epochs)
    resumed = run.wait_for_step()
    run.wait()
    loss = max(longest_loss, step - resumed)
    return Faults(done, resumes + (resumed > 0), killed, saves, loss)


def uninterrupted(npz, directory, epochs):
    """Trains and returns how many seconds that took after compilation."""
    Run(npz, directory.with_name("compiling"), 1).wait()
    run = Run(npz, directory, epochs)
    run.wait_for_step()
    began = time.monotonic()
    run.wait()
    return time.monotonic() - began


def differences(npz, one, other, epochs):
    """In words; [] if both ended in the same bits."""
    import jax
    import numpy as np

    from capsjax.runs import loop

    config = tiny_config(npz)
    config.training.epochs = epochs
    # Both are finished: this restores.
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        a, b = (loop.train(config, d, devices=jax.devices()[:1]) for d in (one, other))
    found = []
    if int(a.state.step) != int(b.state.step):
        found.append(f"step {a.state.step} and {b.state.step}")
    for (path, x), y in zip(
        jax.tree.leaves_with_path(a.state), jax.tree.leaves(b.state), strict=True
    ):
        if np.asarray(x).tobytes() != np.asarray(y).tobytes():
            found.append(jax.tree_util.keystr(path))
    if a.history.to_json() != b.history.to_json():
        found.append("history")
    if (one / "metrics.jsonl").read_bytes() != (other / "metrics.jsonl").read_bytes():
        found.append("metrics.jsonl")
    return found
