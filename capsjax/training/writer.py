"""Keeps metrics.jsonl and TensorBoard's event files equal to a history that grows."""

import contextlib
import json
import tempfile
import time
from pathlib import Path

from etils import epath
from tensorboardX import SummaryWriter

from capsjax.training import hosts, storage
from capsjax.training.metrics import History
from capsjax.training.snapshots import Snapshot

# An object of a store cannot be appended to, so files are uploaded whole and not at each dispatch.
SECONDS_BETWEEN_UPLOADS = 60.0


class Writer:
    """Writes what is new in a history; on other hosts than the first it does nothing.

    A local `workdir` is written to directly. For an object store the files grow in a temporary
    directory and are uploaded every minute and at the end: what a crash loses of them is in the
    checkpoint's history, from which they are written anew.
    """

    def __init__(self, workdir: epath.Path, history: History):
        self._active = hosts.is_first()
        if not self._active:
            return
        self._history, self._written = history, len(history.records)
        self._workdir, self._closing = workdir, contextlib.ExitStack()
        if storage.is_local(workdir):
            self._local = Path(workdir)
        else:
            self._local = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
            self._closing.callback(self._upload)
        # Written anew: it may hold records that are newer than the checkpoint we start from.
        self._file = self._closing.enter_context((self._local / "metrics.jsonl").open("w"))
        self._file.writelines(json.dumps(record) + "\n" for record in history.records)
        self._file.flush()
        last = history.records[-1]["step"] if history.records else 0
        self._events = SummaryWriter(str(self._local / "events"), purge_step=last + 1)
        self._closing.callback(self._events.close)
        self._uploaded = time.monotonic()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._active:
            self._closing.close()

    def flush(self) -> None:
        """Writes the records that are new."""
        if not self._active:
            return
        for record in self._history.records[self._written :]:
            self._file.write(json.dumps(record) + "\n")
            for name in record.keys() - {"step", "epoch", "split", "steps"}:
                self._events.add_scalar(f"{record['split']}/{name}", record[name], record["step"])
        self._file.flush()
        self._written = len(self._history.records)
        if time.monotonic() - self._uploaded > SECONDS_BETWEEN_UPLOADS:
            self._events.flush()
            self._upload()

    def add_speed(self, step: int, images_per_second: float) -> None:
        """Only for TensorBoard: a time is no part of the history."""
        if self._active:
            self._events.add_scalar("train/images_per_second", images_per_second, step)

    def add_snapshot(self, step: int, snapshot: Snapshot) -> None:
        """Only for TensorBoard too: whether anybody looks is no part of the history."""
        if not self._active:
            return
        for tag, value in snapshot.scalars.items():
            self._events.add_scalar(tag, value, step)
        for tag, picture in snapshot.pictures.items():
            self._events.add_image(tag, picture, step, dataformats="HWC")

    def _upload(self) -> None:
        if storage.is_local(self._workdir):
            return
        storage.copy(epath.Path(self._local), self._workdir)
        self._uploaded = time.monotonic()
