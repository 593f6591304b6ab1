"""The directory of a run: whose it is, and that no other process trains in it."""

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import ml_collections
from etils import epath

from capsjax import _files, _ledger
from capsjax.runs.failures import removed
from capsjax.runs.hosts import from_first_host
from capsjax.runs.verifying import check_names
from capsjax.training import config as configs

LOCK = ".lock"
CONFIG = "config.json"
FILES = (LOCK, CONFIG, "metrics.jsonl", "seeds.json", "tracker.json")
FOLDERS = ("checkpoints", "events", "damaged", "profile")


class ClaimedDirectory(NamedTuple):
    """A directory that is a run's."""

    key_version: int  # that the run began with
    # raises OSError if other processes are no longer kept out; with several hosts, all must call it
    check: Callable[[], None]


@contextlib.contextmanager
def claimed(workdir: epath.Path, config: ml_collections.ConfigDict) -> Iterator[ClaimedDirectory]:
    """Makes `workdir` the directory of this run, and keeps other processes out while in the block.

    In an object store, or on a file system without locks, nothing is locked.

    Raises:
      ValueError: another process trains there; or it belongs to another config (the differences
        are listed), or holds something that is not a run. Nothing was changed.
    """
    with contextlib.ExitStack() as held:
        lock: _ledger.Lock | None = None

        def claim() -> int:
            nonlocal lock
            _check_place(workdir)
            if _files.is_local(workdir) and os.name == "posix":
                lock = _take_lock(workdir, held)
            return _compare_or_write(workdir, config)

        def check() -> None:
            if _files.is_local(workdir) and not workdir.is_dir():
                raise removed(workdir)
            if lock is not None and not lock.holds:
                raise OSError(
                    f"{workdir / LOCK} was removed or replaced during training, so another "
                    "process may be training there: stopped without saving. What was saved before "
                    "stays; if no other process is at it, the same command resumes"
                )

        yield ClaimedDirectory(from_first_host(claim), lambda: from_first_host(check))


def _check_place(workdir: epath.Path) -> None:
    """Raises ValueError unless `workdir` is new, empty, or a run no part of which is a link."""
    if _files.is_local(workdir):
        if set("*?[") & set(str(workdir)):
            raise ValueError(
                f"workdir {workdir}: Orbax takes *, ? and [ in a directory's name for patterns, "
                "and could not read its checkpoints again: choose another. Nothing was changed"
            )
        if workdir.exists() and not workdir.is_dir():
            raise ValueError(f"workdir {workdir} is not a directory: choose another one")
        for name in (*FILES, *FOLDERS):
            _check_kind(Path(workdir) / name, "file" if name in FILES else "directory")
        check_names(workdir / "checkpoints")
    names = [path.name for path in workdir.iterdir()] if workdir.exists() else []
    # A start that was killed leaves at most the lock and a part of the config.
    started = all(n == LOCK or (CONFIG in n and n.endswith(_files.TEMPORARY)) for n in names)
    if not started and not (workdir / CONFIG).exists():
        raise ValueError(
            f"workdir {workdir} is not empty and not a run of capsjax (it has no "
            f"{CONFIG}): choose another directory. Nothing was changed"
        )


def _check_kind(path: Path, kind: str) -> None:
    if path.is_symlink():
        raise ValueError(
            f"{path} is a link to {os.readlink(path)}: runs are not written through links "
            "out of their directory. Put the real one there, or give another work "
            "directory. Nothing was changed"
        )
    if path.exists() and not (path.is_file() if kind == "file" else path.is_dir()):
        raise ValueError(
            f"{path} is not a {kind}: the run is damaged. Remove it, or choose another work "
            "directory. Nothing was changed"
        )


def _take_lock(workdir: epath.Path, held: contextlib.ExitStack) -> _ledger.Lock | None:
    """Takes the lock until `held` is closed; returns None on a file system without locks."""
    try:
        lock = held.enter_context(_ledger.lock(Path(workdir) / LOCK, wait=False))
    except _ledger.NoLocks as error:
        warnings.warn(f"{error}; a second process could train in the same directory", stacklevel=2)
        return None
    if lock is None:
        raise ValueError(
            f"another process is training in {workdir}: wait for it, or choose another "
            "directory. Nothing was changed"
        )
    return lock


def _compare_or_write(workdir: epath.Path, config: ml_collections.ConfigDict) -> int:
    """Returns the `key_version` that the run began with, which may be an earlier one."""
    file = workdir / CONFIG
    if not file.exists():
        workdir.mkdir(parents=True, exist_ok=True)
        _write(file, config)
        return config.key_version
    try:
        old = configs.from_json(json.loads(file.read_text()))
        if not isinstance(old.key_version, int):
            raise ValueError(f"its key_version is {old.key_version!r}")
        lines = configs.conflicts(old, config)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}): the run is damaged. Nothing was changed"
        ) from error
    if old.key_version < config.key_version:
        lines = [line for line in lines if not line.startswith("key_version:")]
    if lines:
        raise ValueError(
            f"workdir {workdir} holds a run of another config; choose another directory, or "
            "remove this one to start afresh. It was made with → you asked for:\n  "
            + "\n  ".join(lines)
        )
    extended = config.copy_and_resolve_references()
    extended.key_version = old.key_version
    if configs.differences(old, extended):
        _write(file, extended)
    return old.key_version


def _write(file: epath.Path, config: ml_collections.ConfigDict) -> None:
    _files.write_atomically(file, json.dumps(configs.to_json(config), indent=2) + "\n")
