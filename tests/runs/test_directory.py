"""Whose a run's directory is: one config's and one process's."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest
from etils import epath

from capsjax import _files
from capsjax.runs import checkpoints
from capsjax.runs.directory import CONFIG, LOCK, claimed
from tests.processes import start_training
from tests.tiny import quick_config


@pytest.fixture
def copy(tiny_run, tmp_path):
    """A copy of a finished run, and its config."""
    directory = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    return epath.Path(directory), checkpoints.read(directory).config


def refused(message, directory, config):
    """What is said as the directory is claimed."""
    with pytest.raises(ValueError, match=message) as error, claimed(epath.Path(directory), config):
        pass
    return str(error.value)


def test_a_lock_keeps_others_out_and_its_file_as_it_is(tmp_path):
    file = tmp_path / "letter.txt"
    file.write_text("years of work")
    with _files.lock(file) as first, _files.lock(file, wait=False) as second:
        assert (first, second) == (True, False)
    assert file.read_text() == "years of work"


def test_two_processes_do_not_train_in_one_directory(copy):
    with claimed(*copy):
        refused("another process is training in", *copy)


def test_a_file_system_without_locks_gives_a_warning(copy, monkeypatch):
    def flock(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    warned = pytest.warns(UserWarning, match="cannot be locked .*not implemented")
    with warned, claimed(*copy):
        pass


def test_a_foreign_directory_is_left_alone(tmp_path, npz):
    (tmp_path / "thesis.txt").write_text("years of work")
    refused("is not empty and not a run", tmp_path, quick_config(npz))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "[1]", "{"])
def test_a_foreign_config_is_left_alone(tmp_path, npz, content):
    (tmp_path / CONFIG).write_text(content)
    refused("is damaged, or not of capsjax", tmp_path, quick_config(npz))
    assert (tmp_path / CONFIG).read_text() == content


def test_a_start_that_was_killed_is_no_run(tmp_path, npz):
    """Between lock and config, or while the config was written."""
    (tmp_path / LOCK).touch()
    (tmp_path / f".{CONFIG}.1234.tmp").touch()
    with claimed(epath.Path(tmp_path), quick_config(npz)):
        assert (tmp_path / CONFIG).exists()


def test_a_name_that_orbax_takes_for_a_pattern(tmp_path, npz):
    refused("Orbax takes", tmp_path / "a[b]", quick_config(npz))


def test_another_config_is_refused(copy):
    directory, config = copy
    before = {p: p.read_bytes() for p in Path(directory).rglob("*") if p.is_file()}
    config.training.batch_size = 8
    config.optimizer.learning_rate = 0.1
    said = refused("another config", directory, config)
    assert "optimizer.learning_rate: 0.001 → 0.1" in said
    assert "training.batch_size: " in said
    after = {p: p.read_bytes() for p in Path(directory).rglob("*") if p.is_file()}
    assert after == before
    (directory / CONFIG).write_text("{")
    refused(r"config\.json is damaged", directory, config)


@pytest.mark.slow
@pytest.mark.parametrize("time", range(3))
def test_of_two_that_start_at_once_one_is_refused(npz, tmp_path, time):
    words = f"--config=tests/quick.py:{npz}", f"--workdir={tmp_path / 'run'}"
    processes = [
        start_training(*words, f"--config.seed={seed}", stderr=subprocess.PIPE) for seed in (0, 1)
    ]
    errors = [process.communicate(timeout=240)[1] for process in processes]
    winner = [process.returncode for process in processes].index(0)
    assert checkpoints.read(tmp_path / "run").config.seed == winner
    # It came while the other trained, or when it was over.
    refused = errors[1 - winner]
    assert "another process is training" in refused or "a run of another config" in refused


def test_local_paths_and_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(_files.absolute("runs/x")) == f"{tmp_path}/runs/x"
    with pytest.raises(ValueError, match="foo://x cannot be reached"):
        _files.absolute("foo://x")
