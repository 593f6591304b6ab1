"""The scripts as a user runs them, in bounded time."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 240  # the longest that a mistake may take to be told, with a busy machine in mind


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def start(script, *arguments, environment=None, before=None, **streams):
    """`python experiments/SCRIPT ARGUMENTS`, with one device."""
    return subprocess.Popen(
        [sys.executable, f"experiments/{script}", *map(os.fspath, arguments)],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "XLA_FLAGS": ""}
        | (environment or {}),
        stdin=subprocess.DEVNULL,
        preexec_fn=before,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def finish(process, seconds=SECONDS):
    """Waits; a process that does not end is killed, and fails the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(
            f"it did not end in {seconds} s: {err.decode(errors='replace')}"
        ) from None
    return Done(
        process.returncode, *(text.decode(errors="replace") for text in (out or b"", err or b""))
    )


def run(script, *arguments, seconds=SECONDS, **options):
    """Starts a script and waits for its end."""
    return finish(start(script, *arguments, **options), seconds)


def quick(npz):
    """The option for a network that is trained in seconds."""
    return f"--config=tests/faults/quick.py:{npz}"


def assert_told(done, message):
    """The command failed with one error in plain words that holds `message`, and no traceback."""
    assert done.code not in (0, None), done.out
    assert "Traceback" not in done.err, done.err
    told = done.err[done.err.rfind("error: ") :]
    assert told.startswith("error: "), done.err
    assert message in told, done.err
    assert done.err.count("error: ") == 1, done.err
