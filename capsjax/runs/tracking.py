"""Metrics of a run at Weights & Biases or trackio, beside TensorBoard.

A tracker is a class with three methods, see `Tracker`; one of your own is known after
`TRACKERS["mine"] = Mine`. All calls come from a thread of their own, so that a tracker that fails
or hangs never stops training.
"""

import importlib.util
import json
import queue
import threading
import uuid
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import ml_collections
from etils import epath

from capsjax import _files
from capsjax._names import lookup
from capsjax.training import config as configs

FILE = "tracker.json"  # how each tracker calls this run, to go on with it
PROJECT = "capsjax"
CLOSE_SECONDS = 30.0


class Tracker(Protocol):
    """One run at a service."""

    def start(self, project: str, name: str, config: Mapping[str, Any], run_id: str | None) -> str:
        """Begins a run, or goes on with that of `run_id`; returns the run's id."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Adds the metrics of a step; on resuming, some steps come a second time."""

    def finish(self) -> None:
        """Returns when all is sent."""


class WandB:
    """Weights & Biases."""

    def start(self, project: str, name: str, config: Mapping[str, Any], run_id: str | None) -> str:
        import wandb

        resume = "never" if run_id is None else "allow"
        self._run = wandb.init(
            project=project, name=name, config=dict(config), id=run_id, resume=resume
        )
        return self._run.id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


class Trackio(WandB):
    """Hugging Face's trackio, with the interface of wandb; it knows runs by their names."""

    def start(self, project: str, name: str, config: Mapping[str, Any], run_id: str | None) -> str:
        import trackio

        # Two runs of one name would be one.
        name = run_id or f"{name}-{uuid.uuid4().hex[:6]}"
        self._run = trackio.init(project=project, name=name, config=dict(config), resume="allow")
        return self._run.name


_SERVICES: dict[str, type[Tracker]] = {"wandb": WandB, "trackio": Trackio}
TRACKERS = dict(_SERVICES)


def check(text: str) -> None:
    """Raises ValueError unless `text` is NAME or NAME:PROJECT of a tracker that is installed."""
    name = text.partition(":")[0]
    lookup("tracker", name, TRACKERS)
    if name in _SERVICES and importlib.util.find_spec(name) is None:
        raise ValueError(f"tracker: {name} is not installed: pip install {name}")


class Tracking:
    """What a run sends to a tracker, in a thread; its problems are warnings.

    A context manager: leaving it waits for what is under way, at most CLOSE_SECONDS. The file
    tracker.json in the run's directory holds the id to resume by.
    """

    def __init__(self, text: str, directory: epath.Path, config: ml_collections.ConfigDict):
        self._name, _, project = text.partition(":")
        self._project, self._directory, self._config = project or PROJECT, directory, config
        self._waiting: queue.SimpleQueue[tuple[int, Mapping[str, float]] | None]
        self._waiting = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="tracker", daemon=True)

    def __enter__(self) -> "Tracking":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self._warn(f"it did not finish within {CLOSE_SECONDS:.0f} seconds")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the metrics of a step; returns at once."""
        self._waiting.put((step, values))

    def _send(self) -> None:
        path, file = self._directory, self._directory / FILE
        # One of several seeds is called by the directory above it too.
        name = f"{path.parent.name}/{path.name}" if path.name.startswith("seed_") else path.name
        try:
            tracker, config = TRACKERS[self._name](), configs.flatten(self._config)
            ids = json.loads(file.read_text()) if file.exists() else {}
            ids[self._name] = tracker.start(self._project, name, config, ids.get(self._name))
            _files.write_atomically(file, json.dumps(ids, indent=2) + "\n")
            while (item := self._waiting.get()) is not None:
                tracker.log(*item)
            tracker.finish()
        except BaseException as error:
            self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"tracker {self._name}: {what}. Training goes on without it; metrics.jsonl and "
            "TensorBoard have everything",
            RuntimeWarning,
            stacklevel=2,
        )
