import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from flax import nnx

import capsjax
from capsjax.models import paths
from capsjax.runs import checkpoints, loop
from capsjax.runs.about import About
from capsjax.runs.history import History
from capsjax.runs.saving import Checkpoints
from capsjax.training.state import split
from tests.tiny import tiny_config

ONE = jax.devices()[:1]


@pytest.fixture(scope="module")
def run(tmp_path_factory, npz):
    config = tiny_config(npz)
    config.training.epochs = 4
    config.checkpoints.keep = 1
    directory = tmp_path_factory.mktemp("run") / "run"
    return directory, loop.train(config, directory, devices=ONE)


def steps(directory):
    return sorted(int(p.name) for p in (directory / "checkpoints").iterdir())


def test_keeps_the_latest_and_the_best(run):
    directory, result = run
    accuracy = result.history.validation_accuracy()
    best = max(accuracy, key=lambda step: (accuracy[step], step))
    assert steps(directory) == sorted({best, 28})
    assert checkpoints.read(directory).step == best
    assert checkpoints.read(directory, "latest").step == 28
    assert checkpoints.read(directory, 28).step == 28
    assert checkpoints.read(directory, np.int64(28)).step == 28


@pytest.fixture
def save(run, tmp_path):
    """Saves these steps with these accuracies in `tmp_path`, as one process of a run would."""
    directory, result = run
    history, config = History(), checkpoints.read(directory).config

    def save(accuracies, steps_per_epoch=1):
        directory = epath.Path(tmp_path)
        with Checkpoints(directory, keep=1, steps_per_epoch=steps_per_epoch) as saver:
            for step, accuracy in accuracies.items():
                if accuracy is not None:
                    history.add_validation(step, step, accuracy)
                state = result.state._replace(step=np.int32(step))
                saver.save(state, About(config, history, {}))

    return save


def test_the_mean_of_the_latest(npz, tmp_path):
    config = tiny_config(npz)
    config.training.epochs, config.checkpoints.keep = 3, 2
    loop.train(config, tmp_path, devices=ONE)
    before, last = (nnx.state(checkpoints.read(tmp_path, s).model) for s in steps(tmp_path)[-2:])
    mean = checkpoints.read(tmp_path, "mean")
    assert mean.step == steps(tmp_path)[-1] == 21
    for name, x in paths.by_path(nnx.state(mean.model)).items():
        one, other = paths.by_path(before)[name], paths.by_path(last)[name]
        np.testing.assert_allclose(x, (one + other) / 2, rtol=1e-6, atol=1e-7)
        assert not np.array_equal(x, other)


def test_a_resumed_run_keeps_the_best_of_all(save, tmp_path):
    """An earlier process saved the best one."""
    save({1: 0.5, 2: 0.9, 3: 0.6})
    assert steps(tmp_path) == [2, 3]
    left = tmp_path / "checkpoints/6.orbax-checkpoint-tmp"
    left.mkdir()  # by a save that was killed
    save({4: 0.7, 5: 0.8})
    assert not left.exists()
    assert steps(tmp_path) == [2, 5]
    assert checkpoints.read(tmp_path).step == 2
    (tmp_path / "checkpoints/2/about/metadata").write_text("{}")
    with pytest.warns(RuntimeWarning, match=r"checkpoints/2 cannot be used: .* back to step 5"):
        assert checkpoints.read(tmp_path).step == 5
    shutil.rmtree(tmp_path / "checkpoints/2")
    with pytest.warns(UserWarning, match="lost its best checkpoint, step 2: 5 is the best left"):
        assert checkpoints.read(tmp_path).step == 5


def test_what_was_saved_within_an_epoch_goes_with_the_next(save, tmp_path):
    """Else the mean of the latest would depend on when a run was interrupted."""
    save({10: 0.5, 20: 0.4, 25: None}, steps_per_epoch=10)
    assert steps(tmp_path) == [10, 20, 25]
    save({30: 0.3}, steps_per_epoch=10)
    assert steps(tmp_path) == [10, 30]


def test_restores_without_any_other_input(run, npz):
    directory, result = run
    model, config = capsjax.restore(directory, "latest")
    images = np.load(npz)["test_images"][..., None]
    state = result.state
    graphdef, _, _ = split(model)
    expected = nnx.merge(graphdef, state.params, state.rest)(images).scores
    np.testing.assert_array_equal(model(images).scores, expected)
    assert config.task.class_names == tuple("0123456789")
    assert config.training.batch_size == 24


def test_a_save_that_was_cut_off_is_no_checkpoint(tmp_path):
    (tmp_path / "checkpoints" / "21.orbax-checkpoint-tmp").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="has no checkpoints"):
        capsjax.restore(tmp_path)


def test_a_foreign_checkpoint_is_named(tmp_path):
    with ocp.CheckpointManager((tmp_path / "checkpoints").absolute()) as manager:
        manager.save(3, args=ocp.args.StandardSave({"weights": np.zeros(2)}))
    with pytest.raises(ValueError, match="cannot be used: it has no checksums"):
        capsjax.restore(tmp_path)


def test_damage_is_found_before_anything_is_restored(run, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(run[0], directory)
    latest = directory / "checkpoints" / "28"
    metadata = latest / "about" / "metadata"
    (latest / "model" / ".DS_Store").touch()  # as the Finder of macOS leaves
    assert checkpoints.read(directory, 28).step == 28
    (latest / "model" / "foreign").touch()
    with pytest.raises(ValueError, match=r"model/foreign does not belong"):
        checkpoints.read(directory, 28)
    (latest / "model" / "foreign").unlink()
    metadata.write_text(metadata.read_text().replace("digits", "digitz"))
    with pytest.raises(ValueError, match=r"about/metadata is damaged"):
        checkpoints.read(directory, 28)
    metadata.unlink()
    with pytest.raises(ValueError, match=r"about/metadata is missing"):
        checkpoints.read(directory, 28)
