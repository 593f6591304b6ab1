import os
import shutil
import signal
import threading
import warnings
from functools import partial

import jax
import numpy as np
import pytest

from capsjax.runs import about, checkpoints, loop, process
from capsjax.training import feed
from tests.tiny import assert_same, quick_config, tiny_config

ONE = jax.devices()[:1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, npz):
    """An uninterrupted run, and its directory."""
    config = tiny_config(npz)
    directory = tmp_path_factory.mktemp("finished") / "run"
    return config, directory, loop.train(config, directory, devices=ONE)


def test_history(finished):
    _, directory, (state, history) = finished
    assert int(state.step) == 14
    # Every third step, and the end of each epoch of seven.
    train = [r for r in history.records if r["split"] == "train"]
    intervals = [(r["step"], r["steps"]) for r in train]
    assert intervals == [(3, 3), (6, 3), (7, 1), (9, 2), (12, 3), (14, 2)]
    assert list(history.validation_accuracy()) == [7, 14]
    assert list((directory / "events").iterdir())
    assert train[-1]["loss"] < train[0]["loss"]


def test_a_finished_run_is_not_repeated(finished, capsys):
    config, directory, result = finished
    again = loop.train(config, directory, devices=ONE)
    assert "finished before" in capsys.readouterr().out
    assert_same(again, result)


# Dispatches of one step each, or as long as can be; stopped in the middle of a logging interval,
# of an epoch, and at the end of an epoch.
@pytest.mark.parametrize(
    ("dispatch_seconds", "stops"), [(0.0, (2, 3, 2)), (2.0, (1, 2, 1))], ids=["short", "long"]
)
def test_interrupted_is_bit_identical_with_uninterrupted(
    finished, config, tmp_path, monkeypatch, interrupt, dispatch_seconds, stops
):
    monkeypatch.setattr(loop, "DISPATCH_SECONDS", dispatch_seconds)
    train = partial(loop.train, config, tmp_path / "run", devices=ONE)
    for after_dispatches in stops:
        interrupt(train, after_dispatches)
    assert_same(train(), finished[2])


def test_a_signal_while_the_last_checkpoint_is_saved_is_not_lost(
    finished, config, tmp_path, monkeypatch
):
    """Else the next of several seeds would begin, and be killed."""
    wait = loop.Checkpoints.wait

    def wait_and_terminate(saver):
        wait(saver)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Checkpoints, "wait", wait_and_terminate)
        with pytest.raises(process.Interrupted):
            loop.train(config, tmp_path / "run", devices=ONE)
    assert_same(loop.train(config, tmp_path / "run", devices=ONE), finished[2])


def test_images_fed_from_the_host_give_the_same_run(
    finished, config, tmp_path, monkeypatch, interrupt, capsys
):
    """The same epochs and losses, and the same position after an interruption within a chunk."""
    monkeypatch.setattr(feed, "CHUNK_STEPS", 3)
    monkeypatch.setattr(loop, "DISPATCH_SECONDS", 0.0)  # dispatches of one step
    train = partial(loop.train, config, tmp_path / "run", devices=ONE, device_budget_mb=0.001)
    interrupt(train, 2)
    assert "0.0 MB, more than device_budget_mb: they are fed" in capsys.readouterr().out
    assert_same(train(), finished[2])


def test_bfloat16_compute_keeps_float32_parameters(finished, config, tmp_path):
    config.training.compute_dtype = "bfloat16"
    state, history = loop.train(config, tmp_path / "run", devices=ONE)
    floating = [x.dtype for x in jax.tree.leaves(state) if np.issubdtype(x.dtype, np.floating)]
    assert set(floating) == {np.dtype(np.float32)}
    # bfloat16 has 8 bits: near the float32 run, and not it.
    ours, theirs = (h.records[0]["loss"] for h in (history, finished[2].history))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert ours != theirs


def _damage(directory, step, how):
    """Truncates the largest file of a checkpoint, or flips one bit in it."""
    files = [p for p in (directory / "checkpoints" / str(step)).rglob("*") if p.is_file()]
    largest = max(files, key=lambda p: p.stat().st_size)
    contents = bytearray(largest.read_bytes())
    if how == "truncated":
        del contents[len(contents) // 2 :]
    else:
        contents[len(contents) // 2] ^= 1
    largest.write_bytes(contents)


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_training_goes_on_from_the_last_good_checkpoint(finished, config, tmp_path, how):
    directory = tmp_path / "run"
    shutil.copytree(finished[1], directory)
    _damage(directory, 14, how)
    with pytest.warns(RuntimeWarning, match=r"checkpoints/14 cannot be used: .* damaged.* step 7"):
        result = loop.train(config, directory, devices=ONE)
    assert_same(result, finished[2])
    assert_same(loop.train(config, directory, devices=ONE), finished[2])  # without a warning
    assert len(list(directory.glob("damaged-14-*"))) == 1


def test_a_directory_without_a_good_checkpoint_is_left_alone(finished, config, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(finished[1], directory)
    _damage(directory, 7, "flipped")
    _damage(directory, 14, "truncated")
    before = _snapshot(directory)
    with pytest.raises(ValueError, match="Nothing was changed"):
        loop.train(config, directory, devices=ONE)
    assert _snapshot(directory) == before


def _snapshot(directory):
    return {p: p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def python_handles_ctrl_c():
    """Whatever started the tests may have turned it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_signals_are_noted_once_and_handlers_come_back():
    before = signal.getsignal(signal.SIGINT)
    with process.catch_signals() as numbers:
        os.kill(os.getpid(), signal.SIGINT)
        assert numbers == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_training_in_a_thread_listens_to_no_signals():
    seen = []

    def run():
        with process.catch_signals() as numbers:
            seen.append(numbers)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [[]]


def test_changed_circumstances_are_named(finished, config, monkeypatch):
    _, directory, result = finished
    current = about.current_circumstances
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.train(config, directory, devices=ONE)
    changed = lambda devices: current(devices) | {"devices": 2}  # noqa: E731
    monkeypatch.setattr(about, "current_circumstances", changed)
    with pytest.warns(RuntimeWarning, match="resumed in other circumstances .devices: 1 → 2.:"):
        assert_same(loop.train(config, directory, devices=ONE), result)


def test_other_images_are_refused(npz, tmp_path):
    file, run = tmp_path / "own.npz", tmp_path / "run"
    shutil.copy(npz, file)
    loop.train(quick_config(file), run, devices=ONE)
    with np.load(npz) as archive:
        arrays = dict(archive)
    np.savez(file, **arrays | {name: arrays[name][:150] for name in ("images", "labels")})
    with pytest.raises(ValueError, match=r"on 180 images, now there are 130: .* init_from=.*run"):
        loop.train(quick_config(file), run, devices=ONE)


def test_a_run_stops_at_the_first_epoch_that_is_good_enough(quick, tmp_path, capsys):
    config = quick
    config.training.epochs = 200
    config.training.stop_at_accuracy = 0.3
    state, history = loop.train(config, tmp_path / "run", devices=ONE)
    accuracies = list(history.validation_accuracy().values())
    assert accuracies[-1] >= 0.3
    assert all(accuracy < 0.3 for accuracy in accuracies[:-1])
    step = int(state.step)
    assert step == 7 * len(accuracies)
    said = f"stopped early, at step {step} of 1400: the validation accuracy reached"
    assert said in capsys.readouterr().out
    assert checkpoints.read(tmp_path / "run").step == step

    again = loop.train(config, tmp_path / "run", devices=ONE)
    assert f"finished before, at step {step}" in capsys.readouterr().out
    assert again.history.to_json() == history.to_json()
