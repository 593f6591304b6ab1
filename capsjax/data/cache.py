"""Decoded arrays on disk, so that images are decoded only once.

One entry is one uncompressed .npz file: the arrays of one split and the fingerprint of the source
that they were decoded from. A changed source has another fingerprint, and its entry is replaced.
The checksums are the zip format's own.
"""

import hashlib
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from capsjax._files import cache_dir, replacing
from capsjax.data.dataset import Examples
from capsjax.data.lazy_images import LazyImages

# Part of every fingerprint: raise it when the layout of entries or the decoding changes.
VERSION = 2


def cached(key: str, fingerprint: str, build: Callable[[], Examples]) -> Examples:
    """Returns `build()` from the cache, after adding it if it is not there.

    A damaged entry, or a directory that cannot be written, gives a warning.

    Args:
      key: what is cached and where it was read; one key has one entry.
      fingerprint: the state of the source; an entry with another one is out of date.
      build: makes the examples; `LazyImages` images stay where they are.
    """
    fingerprint = f"{VERSION}; {fingerprint}"
    path = cache_dir() / "datasets" / _file_name(key)
    examples = _read(path, fingerprint)
    if examples is None:
        examples = build()
        if not isinstance(examples.images, LazyImages):
            _write(path, fingerprint, examples, examples.images)
    return examples


def _file_name(key: str) -> str:
    """Returns a name that people recognise and that differs between keys."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key)[-60:].strip("-")
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"


def _read(path: Path, fingerprint: str) -> Examples | None:
    """Returns the entry at `path`, or None if it is missing, out of date or damaged."""
    try:
        # Opened here, not by NumPy, which would leave a file open that is not a zip archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as entry:
            if str(entry["fingerprint"]) != fingerprint:
                return None
            # Reading a member to its end checks its CRC.
            names = tuple(str(name) for name in entry["class_names"])
            return Examples(entry["images"], entry["labels"], names)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(
            f"cache entry {path} cannot be read and is built again: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        return None


def _write(path: Path, fingerprint: str, examples: Examples, images: np.ndarray) -> None:
    """Writes an entry so that readers see the old one or the whole new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(
                file,
                images=images,
                labels=examples.labels,
                class_names=np.asarray(examples.class_names, dtype=np.str_),
                fingerprint=np.asarray(fingerprint),
            )
    except OSError as error:
        warnings.warn(
            f"cannot write the cache entry {path}: {error}. Images are decoded again at the next "
            "start; set CAPSJAX_CACHE_DIR to a directory that can be written",
            RuntimeWarning,
            stacklevel=4,
        )
