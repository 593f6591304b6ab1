"""A run's directory belongs to one config."""

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import ml_collections
from etils import epath

from capsjax.training import config as configs
from capsjax.training import hosts, storage

LOCK = ".lock"


def claim(workdir: epath.Path, config: ml_collections.ConfigDict) -> None:
    """Makes `workdir` the directory of this run, or finds that it is already.

    Raises:
      ValueError: it belongs to another config (the differences are listed), or holds something
        that is not a run. Nothing is changed then.
    """
    file = workdir / "config.json"
    # A start that was killed leaves no more than that.
    if not workdir.exists() or {path.name for path in workdir.iterdir()} <= {"config.json.tmp"}:
        workdir.mkdir(parents=True, exist_ok=True)
        storage.write_whole(file, json.dumps(configs.to_json(config), indent=2) + "\n")
        return
    if not file.exists():
        raise ValueError(
            f"workdir {workdir} is not empty and no run of capsjax (it has no config.json): "
            "choose another directory. Nothing was changed"
        )
    try:
        old = configs.from_json(json.loads(file.read_text()))
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}): the run is damaged. Nothing was changed"
        ) from error
    lines = configs.differences(old, config)
    if lines:
        raise ValueError(
            f"workdir {workdir} holds a run of another config; choose another directory, or "
            "remove this one to start anew. It was made with → you asked for:\n  "
            + "\n  ".join(lines)
        )


@contextlib.contextmanager
def alone(workdir: epath.Path) -> Iterator[None]:
    """While in the block no other process can enter one for the same `workdir`.

    Where it lies in an object store, or the file system has no locks, nothing is locked.

    Raises:
      ValueError: another process is in one. Nothing was changed.
    """
    with contextlib.ExitStack() as held:

        def take() -> None:
            from capsjax.training.locks import hold  # not of every system

            try:
                free = held.enter_context(hold(Path(os.fspath(workdir)) / LOCK, wait=False))
            except OSError as error:
                warnings.warn(
                    f"{error}; nothing keeps a second process out of this run", stacklevel=2
                )
                return
            if not free:
                raise ValueError(
                    f"another process is training in {workdir}: wait for it, or choose another "
                    "directory. Nothing was changed"
                )

        if storage.is_local(workdir) and os.name == "posix":
            hosts.from_first(take)
        yield
