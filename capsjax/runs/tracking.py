"""Metrics of a run at Weights & Biases or trackio, beside TensorBoard."""

import importlib
import importlib.util
import json
import uuid
from typing import Any

import ml_collections
from etils import epath

from capsjax import _files
from capsjax._names import lookup
from capsjax.training import config as configs

FILE = "tracker.json"  # how each service calls this run, to go on with it
SERVICES = {"wandb": "id", "trackio": "name"}  # and the argument that takes it


def check(tracker: str) -> None:
    """Raises ValueError unless `tracker` is NAME or NAME:PROJECT of an installed service."""
    service = tracker.partition(":")[0]
    lookup("tracker", service, SERVICES)
    if importlib.util.find_spec(service) is None:
        raise ValueError(f"tracker: {service} is not installed: pip install {service}")


def start(tracker: str, directory: epath.Path, config: ml_collections.ConfigDict) -> Any:
    """Begins a run at a service, or goes on with it; returns what has `log` and `finish`."""
    service, _, project = tracker.partition(":")
    # One of several seeds is called by the directory above it too.
    parts = directory.parts[-2:] if directory.name.startswith("seed_") else directory.parts[-1:]
    name, file = "-".join(parts), directory / FILE
    ids = json.loads(file.read_text()) if file.exists() else {}
    run = ids.setdefault(service, f"{name}-{uuid.uuid4().hex[:6]}")
    _files.write_atomically(file, json.dumps(ids, indent=2) + "\n")
    return importlib.import_module(service).init(
        project=project or "capsjax",
        config=configs.flatten(config),
        resume="allow",
        **{"name": name, SERVICES[service]: run},
    )
