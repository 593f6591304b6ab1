"""Decoded arrays on disk, so that images are decoded only once.

An entry is an uncompressed .npz file, with the fingerprint of the source of its arrays.
"""

import re
import warnings
from collections.abc import Callable

import numpy as np

from capsjax._files import cache_dir, digest, replacing
from capsjax.data.dataset import Examples

# Part of every fingerprint: raise it when the layout of entries or the decoding changes.
VERSION = 2


def cached(key: str, fingerprint: str, build: Callable[[], Examples]) -> Examples:
    """Returns the entry `key` of the cache if its `fingerprint` matches, else builds and stores it.

    `LazyImages` are not stored. An entry that cannot be read or written gives a warning.
    """
    fingerprint = f"{VERSION}; {fingerprint}"
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key)[-60:].strip("-")
    name = f"{readable}-{digest(key)[:16]}.npz"
    path = cache_dir() / "datasets" / name
    try:
        # Opened here, not by NumPy, which would leave a file open that is not a zip archive.
        # Reading a member to its end checks its CRC.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as entry:
            if str(entry["fingerprint"]) == fingerprint:
                names = tuple(entry["class_names"].tolist())
                return Examples(entry["images"], entry["labels"], names)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # zipfile and NumPy raise many types for damaged files
        said = f"cache entry {path} cannot be read and is built again: {error}"
        warnings.warn(said, RuntimeWarning, stacklevel=3)
    examples = build()
    if isinstance(examples.images, np.ndarray):
        arrays = examples._asdict() | {"class_names": np.array(examples.class_names, np.str_)}
        try:
            with replacing(path) as new:  # readers see the old entry or the whole new one
                np.savez(new, **arrays, fingerprint=fingerprint)
        except OSError as error:
            said = f"cannot write the cache entry {path}: {error}; set CAPSJAX_CACHE_DIR"
            warnings.warn(said, RuntimeWarning, stacklevel=3)
    return examples
