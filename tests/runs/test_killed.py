"""A run that is killed at random moments ends in the same bits.

So does one on a disk that loses what was not synced, as after a power cut.
"""

import random
import shutil
import subprocess
import time

import jax
import pytest

from capsjax.runs import loop
from tests.processes import start_training
from tests.tiny import assert_same, quick_config

EPOCHS, KILLS = 60, 6


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
        lost = self.place / "lost"
        lost.write_bytes(b"b" * 10_000)
        left = self._file.with_suffix(".left")
        shutil.copyfile(self._file, left)
        self.unmount()
        left.replace(self._file)
        self._mount()  # which replays the journal
        # Else a test would show nothing.
        assert not lost.exists() or lost.read_bytes() != b"b" * 10_000


@pytest.fixture
def disk(tmp_path):
    try:
        disk = Disk(tmp_path / "disk", tmp_path / "mounted")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of one's own here: {error}")
    yield disk
    disk.unmount()


@pytest.mark.slow
@pytest.mark.parametrize("power_cuts", [False, True])
def test_killed_runs_end_in_the_bits_of_the_uninterrupted(npz, tmp_path, request, power_cuts):
    def start(directory):
        words = f"--config=tests/quick.py:{npz}", f"--workdir={directory}"
        return start_training(*words, f"--config.training.epochs={EPOCHS}")

    def saved():
        return set(killed.glob("checkpoints/[0-9]*"))

    disk = request.getfixturevalue("disk") if power_cuts else None
    whole, killed = tmp_path / "whole", (disk.place if disk else tmp_path) / "killed"
    assert start(whole).wait() == 0
    draw, codes = random.Random(0), []
    for kill in range(KILLS):
        before, process = saved(), start(killed)
        while kill % 3 < 2 and process.poll() is None and saved() <= before:
            time.sleep(0.1)
        time.sleep(draw.uniform(0, 1.5))  # the third time anywhere, in its start too
        process.kill()
        codes.append(process.wait())
        if disk:
            disk.cut()
    assert max(codes) <= 0
    assert codes.count(0) <= KILLS / 2  # it was over first: moments are drawn by the clock
    assert start(killed).wait() == 0
    assert not list((killed / "checkpoints").glob("*.orbax-checkpoint-tmp*"))
    assert (whole / "metrics.jsonl").read_bytes() == (killed / "metrics.jsonl").read_bytes()
    config = quick_config(npz)
    config.training.epochs = EPOCHS
    # Both are finished: this restores.
    assert_same(*(loop.train(config, d, devices=jax.devices()[:1]) for d in (whole, killed)))
