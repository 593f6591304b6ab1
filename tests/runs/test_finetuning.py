"""Runs that begin with what another network learned."""

import re
import shutil
from functools import partial

import jax
import numpy as np
import pytest

from capsjax.models import paths
from capsjax.runs import checkpoints, loop
from capsjax.training.state import split
from tests.tiny import assert_same, quick_config

ONE = jax.devices()[:1]


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory, npz):
    """The directory of a finished run of `quick_config` and its result."""
    directory = tmp_path_factory.mktemp("quick") / "run"
    return directory, loop.train(quick_config(npz), directory, devices=ONE)


def variables(model):
    _, params, rest = split(model)
    return {k: np.asarray(v) for k, v in (paths.by_path(params) | paths.by_path(rest)).items()}


def test_all_of_a_network_of_the_same_kind(quick, tmp_path, quick_run, capsys):
    """It begins where the other ended; a frozen layer keeps its bits despite weight decay."""
    donor, (_, there) = quick_run
    quick.init_from = str(donor)
    quick.frozen_layers = ("convs",)
    quick.optimizer.weight_decay = 0.01
    quick.seed = 7
    _, history = loop.train(quick, tmp_path / "run", devices=ONE)
    before = variables(checkpoints.restore(donor)[0])
    after = variables(checkpoints.restore(tmp_path / "run", "latest")[0])
    assert re.search(
        rf"From {donor}, step \d+: {len(after)} of {len(after)} variables, .*Fresh: nothing",
        capsys.readouterr().out,
    )
    assert history.records[0]["loss"] < there.records[2]["loss"]
    still = {path for path in before if np.array_equal(before[path], after[path])}
    assert still == {path for path in before if path.startswith("convs/")}


def test_resuming_does_not_read_it(quick, tmp_path, quick_run, monkeypatch, interrupt):
    donor, run = tmp_path / "donor", tmp_path / "run"
    shutil.copytree(quick_run[0], donor)
    quick.init_from = str(donor)
    quick.init_layers = ("convs",)
    whole = loop.train(quick, tmp_path / "whole", devices=ONE)
    monkeypatch.setattr(loop, "DISPATCH_SECONDS", 0.0)  # dispatches of one step, seven an epoch
    train = partial(loop.train, quick, run, devices=ONE)
    interrupt(train, 9)
    shutil.rmtree(donor)
    assert_same(train(), whole)


def test_fresh_class_layer_for_other_classes(quick, tmp_path, quick_run, npz, capsys):
    with np.load(npz) as file:
        arrays = dict(file)
    for prefix in ("", "test_"):
        few = arrays[f"{prefix}labels"] < 4
        for name in ("images", "labels"):
            arrays[prefix + name] = arrays[prefix + name][few]
    np.savez(tmp_path / "four.npz", **arrays)
    quick.data.name = f"npz:{tmp_path / 'four.npz'}"
    quick.init_from = str(quick_run[0])
    quick.training.epochs = 1
    loop.train(quick, tmp_path / "run", devices=ONE)
    taken, _, fresh = capsys.readouterr().out.partition("Fresh: ")
    assert "convs/0/kernel" in taken
    assert "classes/kernel (16×10 there, 16×4 here)" in fresh
    assert "convs" not in fresh
