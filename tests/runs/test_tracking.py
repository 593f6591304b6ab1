"""Trackers get what metrics.jsonl gets."""

import json
import sys
from types import SimpleNamespace

import jax
import pytest

from capsjax.runs import loop, tracking
from tests.tiny import quick_config


@pytest.mark.parametrize(("name", "identity"), [("wandb", "id"), ("trackio", "name")])
def test_the_same_metrics_and_after_resuming_the_same_run(
    npz, tmp_path, monkeypatch, name, identity
):
    begun, sent = [], []
    run = SimpleNamespace(
        log=lambda values, step: sent.append((step, values)), finish=lambda: sent.append("end")
    )
    service = SimpleNamespace(init=lambda **options: begun.append(options) or run)
    monkeypatch.setitem(sys.modules, name, service)
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: service)
    config, directory = quick_config(npz), tmp_path / "run"
    monitoring = loop.Monitoring(tracker=f"{name}:mine")
    for config.training.epochs in (1, 2):
        loop.train(config, directory, devices=jax.devices()[:1], monitoring=monitoring)
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    beside = {"step", "epoch", "split", "steps"}
    expected = [
        (r["step"], {f"{r['split']}/{key}": r[key] for key in r.keys() - beside}) for r in lines
    ]
    assert [item for item in sent if item != "end"] == expected
    assert sent.count("end") == 2
    first, second = begun
    assert first["project"] == "mine"
    assert first["config"]["training.batch_size"] == 24
    assert first[identity] == second[identity]
    assert first["name"].startswith("run")


@pytest.mark.parametrize(
    ("tracker", "message"),
    [
        ("wanbd", "unknown tracker 'wanbd': did you mean 'wandb'"),
        ("wandb", "wandb is not installed: pip install wandb"),
    ],
)
def test_a_tracker_that_is_not_there(monkeypatch, tracker, message):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=message):
        loop.Monitoring(tracker=tracker)
