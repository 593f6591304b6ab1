"""Trained networks to hand out: one file of safetensors, with all that `restore` needs in it.

The tensors are the network's variables by path, such as "primary/conv/kernel", which any reader of
safetensors gives. The file's metadata hold the config, the history and the step as JSON under
"capsjax", and a checksum.
"""

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from etils import epath
from flax import nnx

from capsjax import _files
from capsjax.models import paths

SUFFIX = ".safetensors"
TIMEOUT_SECONDS = 60


def is_one(path: str | os.PathLike[str]) -> bool:
    """Whether `path` names a released file and not the directory of a run."""
    text = os.fspath(path)
    return (urllib.parse.urlsplit(text).path if is_on_the_web(text) else text).endswith(SUFFIX)


def is_on_the_web(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is an address that a web server answers."""
    return os.fspath(path).startswith(("http://", "https://"))


def write(file: str | os.PathLike[str], model: nnx.Module, about: Mapping[str, Any]) -> epath.Path:
    """Writes `model` into a new file, and returns its path.

    Args:
      file: ends in .safetensors; a local path or any address of etils.epath.
      model: the network.
      about: its "config", "history" and "step", as what `json` writes.

    Raises:
      FileExistsError: there is such a file.
      ValueError: the name does not end in .safetensors.
    """
    if not is_one(file):
        raise ValueError(f"file must end in {SUFFIX}, got {os.fspath(file)!r}")
    path = _files.absolute(file)
    if path.exists():
        raise FileExistsError(f"{path} is there already: remove it, or choose another name")
    tensors = {name: np.asarray(x) for name, x in paths.by_path(nnx.state(model)).items()}
    description = json.dumps(about, sort_keys=True)
    metadata = {"capsjax": description, "sha256": _digest(tensors, description)}
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_atomically(path, safetensors.numpy.save(tensors, metadata))
    return path


def read(file: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The variables by path, and the `about` of `write`.

    Args:
      file: a local path, an http(s) address or any of etils.epath.

    Raises:
      FileNotFoundError: there is no such file.
      OSError: it cannot be downloaded.
      ValueError: it is damaged, or was not written by `write`.
    """
    name = os.fspath(file)
    contents = _contents(name)
    try:
        tensors = safetensors.numpy.load(contents)
        header = json.loads(contents[8 : 8 + int.from_bytes(contents[:8], "little")])
        metadata = header["__metadata__"]
        description, expected = metadata["capsjax"], metadata["sha256"]
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{name} is damaged, or was not made by experiments/release.py "
            f"({type(error).__name__}: {error})"
        ) from error
    if _digest(tensors, description) != expected:
        raise ValueError(
            f"{name} is damaged: its checksum does not match. Download or copy it again"
        )
    return tensors, json.loads(description)


def _contents(name: str) -> bytes:
    if is_on_the_web(name):
        try:
            with urllib.request.urlopen(name, timeout=TIMEOUT_SECONDS) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            kind = FileNotFoundError if error.code == 404 else OSError
            raise kind(f"{name}: the server answers {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise OSError(f"{name} cannot be read: {getattr(error, 'reason', error)}") from error
    path = _files.absolute(name)
    # epath takes a pipe for a file, and reading one may wait for ever.
    if not (Path(path).is_file() if _files.is_local(path) else path.is_file()):
        raise FileNotFoundError(f"there is no file {path}")
    return path.read_bytes()


def _digest(tensors: Mapping[str, np.ndarray], description: str) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
