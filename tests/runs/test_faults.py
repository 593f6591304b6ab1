"""SIGKILL at random moments."""

import pytest

from tests.runs import killing


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "epochs"), [(2, 6), (30, 200)])
def test_killed_runs_end_in_the_bits_of_the_uninterrupted(npz, tmp_path, kills, epochs):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    seconds = killing.uninterrupted(npz, whole, epochs)
    faults = killing.kill_and_resume(
        npz, killed, kills=kills, epochs=epochs, seed=kills, seconds=seconds
    )
    print(faults)
    assert faults.kills >= kills / 2
    assert killing.differences(npz, whole, killed, epochs) == []
    # One interval, and the save in flight.
    assert faults.longest_loss <= 2 * killing.INTERVAL
    assert not list((killed / "checkpoints").glob("*.orbax-checkpoint-tmp*"))
