"""A run on a disk that loses what was not synced: as after a power cut."""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from capsjax.runs import checkpoints
from tests.faults.commands import finish, quick, run, start

CUTS = 6


class Disk:
    """An ext4 file system in a file.

    What programs write stays in memory until they sync it or the kernel gets to it, and only
    then reaches the file. A copy of the file is what a power cut would have left.
    """

    def __init__(self, file, place):
        self._file, self.place = file, place
        with file.open("wb") as opened:
            opened.truncate(64 * 2**20)
        _done("mkfs.ext4", "-q", "-F", str(file))
        place.mkdir()
        self._mount()

    def _mount(self):
        _done("mount", "-o", "loop", str(self._file), str(self.place))

    def cut(self):
        """The power goes and comes back: what is on the disk is what had been written to it."""
        left = self._file.with_suffix(".left")
        shutil.copyfile(self._file, left)
        self.unmount()
        left.replace(self._file)
        self._mount()  # which replays the journal

    def unmount(self):
        for _ in range(50):
            if subprocess.run(["umount", str(self.place)], check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise OSError(f"{self.place} stays busy")


def _done(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    try:
        disk = Disk(tmp_path / "disk", tmp_path / "mounted")
    except OSError as error:
        pytest.skip(f"no file system of one's own here: {error}")
    yield disk
    disk.unmount()


@pytest.mark.slow
def test_the_disk_loses_what_was_not_synced(disk):
    """Else the test below would show nothing."""
    with (disk.place / "synced").open("wb") as file:
        file.write(b"a" * 10_000)
        file.flush()
        os.fsync(file.fileno())
    (disk.place / "lost").write_bytes(b"b" * 10_000)
    disk.cut()
    assert (disk.place / "synced").read_bytes() == b"a" * 10_000
    lost = disk.place / "lost"
    assert not lost.exists() or lost.read_bytes() != b"b" * 10_000


def _bits(directory):
    """The bits of the last checkpoint and of the log."""
    restored = checkpoints.read(directory, "latest")
    leaves = [np.asarray(x).tobytes() for x in jax.tree.leaves(nnx.state(restored.model))]
    return restored.step, leaves, restored.history.to_json()


@pytest.mark.slow
def test_runs_survive_power_cuts(npz, disk, tmp_path):
    draw = random.Random(0)
    epochs = "--config.training.epochs=60"
    whole = run("train.py", quick(npz), f"--workdir={tmp_path / 'whole'}", epochs)
    assert whole.code == 0, whole.err
    place, resumed = disk.place / "run", 0
    command = ("train.py", quick(npz), f"--workdir={place}", epochs)
    for _ in range(CUTS):
        process = start(*command)
        before = _steps(place)
        for _ in range(600):  # until it has saved something new
            if _steps(place) - before or process.poll() is not None:
                break
            time.sleep(0.1)
        time.sleep(draw.uniform(0, 1.5))
        process.kill()
        done = finish(process)
        assert done.code <= 0, done.err
        resumed += "resuming at step" in done.out
        disk.cut()
    last = run(*command)
    assert last.code == 0, last.err
    print(f"{CUTS} cuts, {resumed} resumes; then: {last.out.splitlines()[1]}")
    assert resumed
    assert _bits(Path(place)) == _bits(tmp_path / "whole")


def _steps(place):
    folder = place / "checkpoints"
    return {p.name for p in folder.iterdir() if p.name.isdecimal()} if folder.is_dir() else set()
