"""A run on a disk that loses what was not synced, as after a power cut."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from capsjax.runs import checkpoints

ROOT = Path(__file__).parents[2]
CUTS = 6


class Disk:
    """An ext4 file system in a file, a copy of which is what a power cut would have left.

    What programs write stays in memory until they sync it or the kernel gets to it.
    """

    def __init__(self, file, place):
        self._file, self.place = file, place
        with file.open("wb") as opened:
            opened.truncate(64 * 2**20)
        place.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-F", file], check=True)
        self._mount()

    def _mount(self):
        subprocess.run(["mount", "-o", "loop", self._file, self.place], check=True)

    def unmount(self):
        subprocess.run(["umount", self.place], check=True)

    def cut(self):
        """The power goes and comes back."""
        left = self._file.with_suffix(".left")
        shutil.copyfile(self._file, left)
        self.unmount()
        left.replace(self._file)
        self._mount()  # which replays the journal


@pytest.fixture
def disk(tmp_path):
    try:
        disk = Disk(tmp_path / "disk", tmp_path / "mounted")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of one's own here: {error}")
    yield disk
    disk.unmount()


def bits(directory):
    """The bits of the last checkpoint and of the log."""
    restored = checkpoints.read(directory, "latest")
    leaves = [np.asarray(x).tobytes() for x in jax.tree.leaves(nnx.state(restored.model))]
    return restored.step, leaves, restored.history.to_json()


@pytest.mark.slow
def test_runs_survive_power_cuts(npz, disk, tmp_path):
    def start(directory):
        words = f"--config=tests/quick.py:{npz} --workdir={directory} --config.training.epochs=60"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": ""}
        command = [sys.executable, "experiments/train.py", *words.split()]
        return subprocess.Popen(command, cwd=ROOT, env=environment)

    draw, place = random.Random(0), disk.place / "run"
    assert start(tmp_path / "whole").wait() == 0
    for _ in range(CUTS):
        process, before = start(place), set(place.glob("checkpoints/[0-9]*"))
        while process.poll() is None and set(place.glob("checkpoints/[0-9]*")) <= before:
            time.sleep(0.1)
        time.sleep(draw.uniform(0, 1.5))
        process.kill()
        assert process.wait() <= 0
        (disk.place / "lost").write_bytes(b"b" * 10_000)
        disk.cut()
        lost = disk.place / "lost"
        # Else this test would show nothing.
        assert not lost.exists() or lost.read_bytes() != b"b" * 10_000
    assert start(place).wait() == 0
    assert bits(place) == bits(tmp_path / "whole")
