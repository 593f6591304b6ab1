"""Two runs in one directory, links out of it, and what does not belong there."""

import os
import shutil
from pathlib import Path

import jax
import pytest
from etils import epath

from capsjax import _files, _ledger
from capsjax.runs import checkpoints, loop
from capsjax.runs.directory import FILES, FOLDERS, LOCK, claimed
from tests.faults.commands import assert_told, finish, quick, run, start
from tests.tiny import quick_config

ONE = jax.devices()[:1]
LETTER = "years of work"


@pytest.fixture
def copy(tiny_run, tmp_path):
    """A copy of a finished run, and its config."""
    directory = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    return epath.Path(directory), checkpoints.read(directory).config


@pytest.fixture
def letter(tmp_path):
    """A file of somebody's that is to stay as it is."""
    file = tmp_path / "letter.txt"
    file.write_text(LETTER)
    yield file
    assert file.read_text() == LETTER


def test_a_lock_follows_no_link(letter, tmp_path):
    (tmp_path / "lock").symlink_to(letter)
    with pytest.raises(ValueError, match="is a link, expected a file"):
        _ledger.lock(tmp_path / "lock").__enter__()


def test_a_lock_keeps_what_is_in_its_file(letter):
    with _ledger.lock(letter) as held:
        assert held.holds


def test_a_lock_that_was_removed_is_noticed(copy):
    directory, config = copy
    with claimed(directory, config) as claim:
        claim.check()
        (directory / LOCK).unlink()
        with pytest.raises(OSError, match=r"\.lock was removed or replaced during training"):
            claim.check()
        (directory / LOCK).touch()
        with pytest.raises(OSError, match=r"\.lock was removed or replaced during training"):
            claim.check()


def test_a_directory_that_vanished_is_noticed(copy):
    directory, config = copy
    with claimed(directory, config) as claim:
        shutil.rmtree(directory)
        with pytest.raises(OSError, match=r"run was removed during training: nothing can be saved"):
            claim.check()
    assert not directory.exists()


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_run_is_a_link(copy, letter, name):
    directory, config = copy
    (directory / name).unlink(missing_ok=True)
    Path(directory / name).symlink_to(letter)
    with pytest.raises(ValueError, match=rf"{name} is a link to .*letter.txt"):
        claimed(directory, config).__enter__()


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("kind", ["a link", "not a directory"])
def test_no_folder_of_a_run_is_something_else(copy, tmp_path, name, kind):
    directory, config = copy
    shutil.rmtree(directory / name, ignore_errors=True)
    if kind == "a link":
        Path(directory / name).symlink_to(tmp_path)
    else:
        (directory / name).touch()
    with pytest.raises(ValueError, match=f"{name} is {kind}"):
        claimed(directory, config).__enter__()


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("21", Path.touch, "21 is a file, not a checkpoint"),
        ("21", lambda path: path.symlink_to(path.parent / "14"), "21 is a link, not"),
        ("21", lambda path: path.symlink_to("nowhere"), "21 is a link, not"),
        ("021", Path.mkdir, "021 is a directory whose name is not spelt"),
    ],
)
def test_only_checkpoints_have_steps_for_names(copy, name, make, message):
    directory, config = copy
    make(Path(directory / "checkpoints" / name))
    with pytest.raises(ValueError, match=message):
        claimed(directory, config).__enter__()
    with pytest.raises(ValueError, match=message):
        checkpoints.read(directory)


def test_a_save_that_was_cut_off_harms_nothing(copy):
    directory, config = copy
    (directory / "checkpoints" / "21.orbax-checkpoint-tmp").mkdir()
    with claimed(directory, config):
        pass
    assert checkpoints.read(directory, "latest").step == 14


def test_a_start_that_was_killed_is_no_run(tmp_path, npz):
    """Between lock and config, or while the config was written."""
    (tmp_path / LOCK).touch()
    (tmp_path / f".config.json.1234{_files.TEMPORARY}").touch()
    with claimed(epath.Path(tmp_path), quick_config(npz)):
        assert (tmp_path / "config.json").exists()


@pytest.mark.slow
def test_a_run_whose_lock_was_removed_stops_at_the_next_save(npz, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    epochs = iter([None, (directory / LOCK).unlink])

    def remove(*_):
        (next(epochs) or (lambda: None))()

    monkeypatch.setattr(loop.Display, "epoch", remove)
    with pytest.raises(OSError, match="stopped without saving"):
        loop.train(quick_config(npz), directory, devices=ONE)
    assert os.listdir(directory / "checkpoints") == ["7"]
    monkeypatch.undo()
    assert int(loop.train(quick_config(npz), directory, devices=ONE).state.step) == 14


@pytest.mark.slow
@pytest.mark.parametrize("time", range(8))
def test_of_two_that_start_at_once_one_is_refused(npz, tmp_path, time):
    directory = tmp_path / "run"
    processes = [
        start("train.py", quick(npz), f"--workdir={directory}", f"--config.seed={seed}")
        for seed in (0, 1)
    ]
    done = [finish(process) for process in processes]
    winner = [end.code for end in done].index(0)
    refused = done[1 - winner]
    config = checkpoints.read(directory).config
    assert config.seed == winner
    assert (directory / "config.json").read_text().count(f'"seed": {winner},') == 1
    # It came while the other trained, or when it was over.
    told = "another process is training" in refused.err
    assert_told(refused, "another process is training" if told else "a run of another config")


@pytest.mark.slow
def test_an_evaluation_follows_no_link(copy, letter):
    directory, _ = copy
    name = "evaluation_npz_{}_test.json"
    first = run("evaluate.py", f"--checkpoint={directory}")
    assert first.code == 0, first.err
    (results,) = Path(directory).glob(name.format("*"))
    results.unlink()
    results.symlink_to(letter)
    assert run("evaluate.py", f"--checkpoint={directory}").code == 0
    assert not results.is_symlink()
