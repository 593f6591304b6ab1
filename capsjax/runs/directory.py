"""The directory of a run: holds one config's run, and only one process trains in it."""

import contextlib
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import ml_collections
from etils import epath

from capsjax import _files
from capsjax.runs.hosts import from_first_host, together
from capsjax.training import config as configs

LOCK, CONFIG = ".lock", "config.json"
SEEN_SECONDS = 10  # in which what one host wrote can be seen on the others


@contextlib.contextmanager
def claimed(workdir: epath.Path, config: ml_collections.ConfigDict) -> Iterator[int]:
    """Makes `workdir` the directory of this run, and keeps other processes out while in the block.

    The block gets the `key_version` that the run began with. Raises ValueError and changes nothing
    if another process trains there, or it holds another config's run or something else; also
    raises it if another host cannot reach it.
    """
    with contextlib.ExitStack() as held:

        def claim() -> int:
            _check_place(workdir)
            if _files.is_local(workdir):
                _take_lock(workdir, held)
            return _compare(workdir, config)

        key_version = from_first_host(claim)
        together(lambda: _check_shared(workdir))
        yield key_version


def begun(workdir: epath.Path) -> ml_collections.ConfigDict | None:
    """Returns the config of the run that began in `workdir`; None if there is none."""
    file = workdir / CONFIG
    if not file.exists():
        return None
    try:
        return configs.from_json(json.loads(file.read_text()))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is damaged, or not of capsjax ({error!r})") from error


def _check_place(workdir: epath.Path) -> None:
    if _files.is_local(workdir) and set("*?[") & set(os.fspath(workdir)):
        raise ValueError(
            f"workdir {workdir}: Orbax takes *, ? and [ in a name for patterns: choose another"
        )
    names = [path.name for path in workdir.iterdir()] if workdir.exists() else []
    # A start that was killed leaves at most the lock and a part of the config.
    if CONFIG not in names and not all(LOCK in name or CONFIG in name for name in names):
        raise ValueError(
            f"workdir {workdir} is not empty and not a run of capsjax (it has no {CONFIG}): "
            "choose another directory"
        )


def _check_shared(workdir: epath.Path) -> None:
    until = time.monotonic() + SEEN_SECONDS
    while not (workdir / CONFIG).exists():
        if time.monotonic() > until:
            raise ValueError(
                f"{workdir / CONFIG}, which host 0 wrote, is not there: workdir must be a "
                "directory that all hosts can reach"
            )
        time.sleep(0.5)


def _take_lock(workdir: epath.Path, held: contextlib.ExitStack) -> None:
    try:
        free = held.enter_context(_files.lock(Path(workdir) / LOCK, wait=False))
    except OSError as error:
        said = f"{workdir} cannot be locked ({error}); a second process could train there too"
        warnings.warn(said, stacklevel=2)
        return
    if not free:
        raise ValueError(
            f"another process is training in {workdir}: wait for it, or choose another directory"
        )


def write(workdir: epath.Path, config: ml_collections.ConfigDict) -> None:
    """Notes on disk what the run was asked for, such as more epochs; for one host."""
    text = json.dumps(configs.to_json(config.copy_and_resolve_references()), indent=2) + "\n"
    _files.write_atomically(workdir / CONFIG, text)


def _compare(workdir: epath.Path, config: ml_collections.ConfigDict) -> int:
    """Returns the `key_version` that the run began with, which may be an earlier one.

    The config is written if there is none. A run that goes on calls `write` when it has found
    nothing against it.
    """
    config = config.copy_and_resolve_references()
    if old := begun(workdir):
        config.key_version = min(config.key_version, old.key_version)
        if lines := configs.conflicts(old, config):
            raise ValueError(
                f"workdir {workdir} holds a run of another config; choose another directory, or "
                "remove this one to start afresh. It was made with → you asked for:\n  "
                + "\n  ".join(lines)
            )
    else:
        write(workdir, config)
    return config.key_version
