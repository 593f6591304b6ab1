"""A run in an object store."""

import json
from functools import partial

import chex
import jax
import numpy as np
import pytest
from etils import epath
from orbax.checkpoint._src.path import gcs_utils

from capsjax.runs import checkpoints, display, loop
from capsjax.training import state
from tests.runs.bucket import BucketFileSystem, bucket
from tests.tiny import tiny_config

ONE = jax.devices()[:1]


@pytest.fixture
def address(monkeypatch):
    # Orbax asks Google's own client, which needs an account, for one property of the bucket.
    monkeypatch.setattr(gcs_utils, "is_hierarchical_namespace_enabled", lambda path: False)
    with bucket(monkeypatch) as address:
        yield f"{address}/runs/a"


def test_a_run_in_a_bucket_is_the_same_run(address, npz, tiny_run, interrupt):
    config = tiny_config(npz)
    train = partial(loop.train, config, address, devices=ONE)
    interrupt(train, epochs=1)
    result = train()

    local = checkpoints.read(tiny_run, "latest")
    stored = checkpoints.read(address, "latest")
    assert stored.step == local.step == 14
    assert stored.history.to_json() == local.history.to_json()
    params, expected = (state.split(c.model)[1] for c in (stored, local))
    chex.assert_trees_all_equal(params, expected)
    chex.assert_trees_all_equal(
        jax.tree.map(np.asarray, result.state.params), jax.tree.map(np.asarray, expected)
    )
    # What else a run holds is there too, written by the second part whole.
    workdir = epath.Path(address)
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.history.records
    assert len(list((workdir / "events").iterdir())) == 2
    assert json.loads((workdir / "config.json").read_text())["seed"] == 0

    config.seed = 1
    with pytest.raises(ValueError, match="seed: 0 → 1"):
        loop.train(config, address, devices=ONE)


def test_damage_in_a_bucket(address, npz, tiny_run):
    config = tiny_config(npz)
    loop.train(config, address, devices=ONE)
    (largest,) = sorted(
        (name for name in BucketFileSystem.store if "/14/optimizer/" in name),
        key=lambda name: len(BucketFileSystem.store[name].getvalue()),
    )[-1:]
    file = BucketFileSystem.store[largest]
    file.seek(50)
    file.write(b"\0")
    file.seek(0)
    with pytest.raises(ValueError, match="is damaged: its contents are not what was saved"):
        checkpoints.read(address, 14)
    with pytest.warns(RuntimeWarning, match="going back to step 7"):
        loop.train(config, address, devices=ONE)
    assert checkpoints.read(address, 14).step == 14
    assert any("/damaged-14-" in name for name in BucketFileSystem.store)


def test_uploads_are_whole_files(address):
    history = display.History()
    file = epath.Path(address) / "metrics.jsonl"
    with display.Display(epath.Path(address), history, first=0, total=2) as shown:
        history.add_validation(1, 1, 0.5)
        shown.update(1, 1.0, 0.5, 0.5)
        assert not file.exists()  # the epoch is not over
        shown.epoch(1, {"loss": 0.5, "accuracy": 0.5}, 0.5)
        assert len(file.read_text().splitlines()) == 1
        history.add_validation(2, 1, 0.5)
        shown.update(2, 1.0, 0.5, 0.5)
    assert len(file.read_text().splitlines()) == 2
