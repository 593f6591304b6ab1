"""Runs that cannot be written, output that nobody can read, and resumes that are not the same."""

import json
import shutil
import subprocess
import warnings
from pathlib import Path

import jax
import pytest
from etils import epath

from capsjax.runs import checkpoints, loop
from capsjax.runs.circumstances import current, warn_of_changes
from capsjax.runs.directory import claimed
from capsjax.runs.output import LenientOutput
from tests.faults.commands import assert_told, fill, quick, run
from tests.tiny import assert_same, quick_config

ONE = jax.devices()[:1]


@pytest.mark.slow
def test_a_full_disk(npz, small_disk):
    arguments = (quick(npz), f"--workdir={small_disk / 'run'}", "--config.training.epochs=20")
    done = run("train.py", *arguments)
    assert_told(done, "the disk is full")
    step = max(
        int(p.name) for p in (small_disk / "run/checkpoints").iterdir() if p.name.isdecimal()
    )
    assert f"the checkpoint of step {step} stays: the same command resumes" in done.err
    size = "remount,size=100m"
    subprocess.run(["mount", "-o", size, str(small_disk)], check=True)
    again = run("train.py", *arguments)
    assert again.code == 0, again.err
    assert f"resuming at step {step}." in again.out


@pytest.mark.slow
def test_a_disk_that_is_full_from_the_start(npz, small_disk):
    fill(small_disk, 390)
    done = run("train.py", quick(npz), f"--workdir={small_disk / 'run'}")
    assert_told(done, "no checkpoint was finished yet: the same command starts again")


@pytest.mark.slow
def test_too_few_file_descriptors(npz, tmp_path):
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", shell="ulimit -n 12")
    assert_told(done, "may not open enough files (ulimit -n)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
)
def test_output_that_cannot_be_encoded(npz, tmp_path, environment):
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", environment=environment)
    assert done.code == 0, done.err
    assert "epoch   2" in done.out
    assert "warning" not in done.err
    done = run("evaluate.py", f"--checkpoint={tmp_path / 'run'}", environment=environment)
    assert "Traceback" not in done.err
    assert done.code == 0, done.err


@pytest.mark.slow
def test_output_that_cannot_be_written(npz, tmp_path):
    with Path("/dev/full").open("w") as full:
        done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", stdout=full)
    assert done.code == 0, done.err
    assert done.err.count("output cannot be written (No space left on device)") == 1
    assert checkpoints.read(tmp_path / "run", "latest").step == 14


@pytest.mark.slow
def test_output_and_errors_that_cannot_be_written(npz, tmp_path):
    with Path("/dev/full").open("w") as full:
        workdir = f"--workdir={tmp_path / 'run'}"
        done = run("train.py", quick(npz), workdir, stdout=full, stderr=full)
    assert done.code == 0
    assert checkpoints.read(tmp_path / "run", "latest").step == 14


@pytest.mark.slow
def test_output_that_is_closed(npz, tmp_path):
    done = run("train.py", quick(npz), f"--workdir={tmp_path / 'run'}", shell="exec >&-")
    assert done.code == 0, done.err
    assert checkpoints.read(tmp_path / "run", "latest").step == 14


def test_lenient_output(capfd):
    with Path("/dev/full").open("w", encoding="ascii") as full:
        output = LenientOutput(full)
        assert full.errors == "backslashreplace"
        for _ in range(3):
            output.write("1 × cpu\n")
            output.flush()
    said = capfd.readouterr().err
    assert said.count("output cannot be written") == 1


@pytest.mark.parametrize("sums", ["[]", "3", "null", '"a"', "{", "[[1]]"])
def test_checksums_that_are_none(tiny_run, tmp_path, sums):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "checkpoints" / "14" / "sha256.json").write_text(sums)
    with pytest.raises(ValueError, match="its checksums"):
        checkpoints.read(run, 14)


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", '"a"', "{", "", "{}", '{"key_version": "a"}', "a section"]
)
def test_configs_of_runs_that_are_none(tiny_run, tmp_path, text):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    if text == "a section":
        config = json.loads((run / "config.json").read_text())
        text = json.dumps(config | {"training": 3})
    (run / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json cannot be read"):
        claimed(epath.Path(run), checkpoints.read(tiny_run).config).__enter__()


def _trained(npz, directory):
    config = quick_config(npz)
    loop.train(config, directory, devices=ONE)
    return config


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "key", "value"), [("optimizer", "learning_rate", 0.5), ("model", "width", 0.125)]
)
def test_a_config_that_was_changed_is_not_resumed(npz, tmp_path, section, key, value):
    """Neither by the command that trained nor by one of the changed config."""
    config = _trained(npz, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    changed = json.loads(file.read_text())
    changed[section][key] = value
    file.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="holds a run of another config"):
        loop.train(config, tmp_path / "run", devices=ONE)
    config[section][key] = value
    with pytest.raises(ValueError, match=rf"trained with another config.*\n.*{section}\.{key}: "):
        loop.train(config, tmp_path / "run", devices=ONE)


def test_changed_circumstances_are_named():
    now = current(ONE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_changes(now, now)
        warn_of_changes({}, now)  # a run that did not write them down
    before = now | {"CPU cores": 1000, "jax": "0.1", "jax_threefry_partitionable": None}
    with pytest.warns(RuntimeWarning, match=r"CPU cores 1000 → \d+, jax '0\.1' → .*partitionable"):
        warn_of_changes(before, now)


@pytest.mark.slow
def test_circumstances_are_kept_and_compared(npz, tmp_path, monkeypatch):
    config = _trained(npz, tmp_path / "run")
    monkeypatch.setattr(
        loop.circumstances, "current", lambda devices: current(devices) | {"devices": 2}
    )
    with pytest.warns(RuntimeWarning, match="resumed in other circumstances .devices 1 → 2.:"):
        loop.train(config, tmp_path / "run", devices=ONE)


@pytest.mark.slow
def test_an_earlier_run_goes_on_as_it_was(npz, tmp_path):
    """In version 1 the data were drawn from the key of the parameters."""
    config = quick_config(npz)
    config.key_version = 1
    whole = loop.train(config, tmp_path / "whole", devices=ONE)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "14")
    for file in (tmp_path / "run").glob("config.json"):  # as it was written then
        then = json.loads(file.read_text())
        del then["key_version"]
        file.write_text(json.dumps(then))
    config.key_version = 2  # what the same command asks for today
    resumed = loop.train(config, tmp_path / "run", devices=ONE)
    assert_same(resumed, whole)
    today = loop.train(config, tmp_path / "today", devices=ONE)
    assert today.history.to_json() != whole.history.to_json()


def test_parameters_and_data_are_drawn_from_other_keys():
    from flax import nnx

    from capsjax.training.step import run_key

    def keys_of_data(version):
        return {jax.random.key_data(k).tobytes() for k in jax.random.split(run_key(3, version))}

    rngs = nnx.Rngs(3)
    of_parameters = {jax.random.key_data(rngs.params()).tobytes() for _ in range(100)}
    assert keys_of_data(1) & of_parameters
    assert not keys_of_data(2) & of_parameters
