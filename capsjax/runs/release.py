"""Trained networks to publish: one file of safetensors, with all that `restore` needs.

Tensors are named by path, such as "primary/conv/kernel". The file's metadata contains the config,
the history and the step as JSON under "capsjax", and a checksum.
"""

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from etils import epath
from flax import nnx

from capsjax import _files
from capsjax.models import paths
from capsjax.runs import about
from capsjax.runs.about import Checkpoint
from capsjax.training.build import trained_model

SUFFIX = ".safetensors"
TIMEOUT_SECONDS = 60


def is_one(path: str | os.PathLike[str]) -> bool:
    """Tells whether `path` names a released file and not the directory of a run."""
    text = os.fspath(path)
    return (urllib.parse.urlsplit(text).path if is_on_the_web(text) else text).endswith(SUFFIX)


def is_on_the_web(path: str | os.PathLike[str]) -> bool:
    """Tells whether `path` is an address that a web server answers."""
    return os.fspath(path).startswith(("http://", "https://"))


def write(
    file: str | os.PathLike[str], model: nnx.Module, description: Mapping[str, Any]
) -> epath.Path:
    """Writes `model` and a `description` for JSON into a new file; returns its path."""
    if not is_one(file):
        raise ValueError(f"file must end in {SUFFIX}, got {os.fspath(file)!r}")
    path = _files.absolute(file)
    if path.exists():
        raise FileExistsError(f"{path} is there already: remove it, or choose another name")
    tensors = {name: np.asarray(x) for name, x in paths.by_path(nnx.state(model)).items()}
    text = json.dumps(description, sort_keys=True)
    metadata = {"capsjax": text, "sha256": _digest(tensors, text)}
    _files.write_atomically(path, safetensors.numpy.save(tensors, metadata))
    return path


def read(file: str | os.PathLike[str], which: str | int = "latest") -> Checkpoint:
    """Reads the network of a file that `write` made; a step in `which` must be that of the file."""
    name = os.fspath(file)
    contents = _contents(name)
    try:
        tensors = safetensors.numpy.load(contents)
        header = json.loads(contents[8 : 8 + int.from_bytes(contents[:8], "little")])
        metadata = header["__metadata__"]
        description, expected = metadata["capsjax"], metadata["sha256"]
    except (safetensors.SafetensorError, KeyError) as error:
        raise ValueError(f"{name} is damaged, or not a released network ({error!r})") from error
    if _digest(tensors, description) != expected:
        raise ValueError(f"{name} is damaged: its checksum does not match. Copy it again")
    tree = json.loads(description)
    config, history, _ = about.parse(tree, name)
    step = tree["step"]
    if isinstance(which, int | np.integer) and which != step:
        raise ValueError(f"there is no step {which} in {name}, only {step}")
    return Checkpoint(trained_model(config, tensors, name), config, history, step)


def _contents(name: str) -> bytes:
    if not is_on_the_web(name):
        if not (path := _files.absolute(name)).exists():
            raise FileNotFoundError(f"{path} does not exist: expected a file of release.py")
        return path.read_bytes()
    try:
        with urllib.request.urlopen(name, timeout=TIMEOUT_SECONDS) as answer:
            return answer.read()
    except OSError as error:  # which does not name the address
        raise OSError(f"{name} cannot be read: {error}") from error


def _digest(tensors: Mapping[str, np.ndarray], description: str) -> str:
    parts: list[str | bytes] = [description]
    for name, array in sorted(tensors.items()):
        parts += [f"{name} {array.dtype} {array.shape}", np.ascontiguousarray(array).tobytes()]
    return _files.digest(*parts)
