"""Trackers get what metrics.jsonl gets, and never stop training."""

import json
import sys
import threading
import types

import jax
import pytest

from capsjax.runs import loop, tracking
from tests.tiny import quick_config

ONE = jax.devices()[:1]


class Notebook:
    """A tracker that remembers everything."""

    runs = {}  # noqa: RUF012

    def start(self, project, name, config, run_id):
        self.id = run_id or f"{project}-{name}-{len(self.runs)}"
        self.runs.setdefault(self.id, []).append(("config", dict(config)))
        return self.id

    def log(self, step, values):
        self.runs[self.id].append((step, values))

    def finish(self):
        self.runs[self.id].append(("end", None))


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setattr(Notebook, "runs", {})
    monkeypatch.setitem(tracking.TRACKERS, "notebook", Notebook)
    return Notebook.runs


def train(npz, directory, tracker, epochs=1):
    config = quick_config(npz)
    config.training.epochs = epochs
    return loop.train(config, directory, devices=ONE, monitoring=loop.Monitoring(tracker=tracker))


def records(directory):
    """What is in metrics.jsonl, as it is sent."""
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    beside = {"step", "epoch", "split", "steps"}
    return [
        (r["step"], {f"{r['split']}/{name}": r[name] for name in sorted(r.keys() - beside)})
        for r in map(json.loads, lines)
    ]


def test_the_same_metrics_and_after_resuming_the_same_run(npz, tmp_path, notebook):
    directory = tmp_path / "run"
    train(npz, directory, "notebook:mine")
    assert list(notebook) == ["mine-run-0"]
    assert json.loads((directory / "tracker.json").read_text()) == {"notebook": "mine-run-0"}
    first = notebook["mine-run-0"]
    assert first[0][0] == "config"
    assert first[0][1]["training.batch_size"] == 24
    assert first[1:-1] == records(directory)
    assert first[-1] == ("end", None)
    train(npz, directory, "notebook:mine", epochs=2)
    assert list(notebook) == ["mine-run-0"]
    sent = [note for note in notebook["mine-run-0"] if isinstance(note[0], int)]
    assert sent == records(directory)


@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_a_tracker_that_fails_stops_nothing(npz, tmp_path, notebook, monkeypatch, method):
    def fail(self, *args):
        raise ConnectionError("no network")

    monkeypatch.setattr(Notebook, method, fail)
    with pytest.warns(RuntimeWarning, match="tracker notebook: ConnectionError: no network"):
        result = train(npz, tmp_path / "run", "notebook")
    assert int(result.state.step) == 7


def test_a_tracker_that_hangs_stops_nothing(npz, tmp_path, notebook, monkeypatch):
    hanging = threading.Event()
    monkeypatch.setattr(Notebook, "log", lambda self, *args: hanging.wait(60))
    monkeypatch.setattr(tracking, "CLOSE_SECONDS", 0.2)
    try:
        with pytest.warns(RuntimeWarning, match="did not finish within 0 seconds"):
            result = train(npz, tmp_path / "run", "notebook")
    finally:
        hanging.set()
    assert int(result.state.step) == 7


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


class Service(types.ModuleType):
    """Stands in for wandb and trackio, whose runs have the same methods."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def init(self, **options):
        self.calls.append(options)
        run = types.SimpleNamespace(
            id=options.get("id") or f"new{len(self.calls)}",
            name=options["name"],
            log=lambda values, step: self.calls.append((step, values)),
            finish=lambda: self.calls.append("finished"),
        )
        return run


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_how_services_are_called(monkeypatch, name):
    service = Service(name)
    monkeypatch.setitem(sys.modules, name, service)
    tracker = tracking.TRACKERS[name]()
    first = tracker.start("project", "run", {"a": 1}, None)
    tracker.log(3, {"loss": 0.5})
    tracker.finish()
    begun, *rest = service.calls
    assert begun["project"] == "project"
    assert begun["config"] == {"a": 1}
    assert rest == [(3, {"loss": 0.5}), "finished"]
    assert tracker.start("project", "another name", {}, first) == first
    assert service.calls[-1]["resume"] == "allow"
    assert tracking.TRACKERS[name]().start("project", "run", {}, None) != first
