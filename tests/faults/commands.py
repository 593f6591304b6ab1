"""The scripts as a user runs them, in bounded time."""

import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Its children begin with JAX imported, but each starts its own runtime.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["capsjax.runs.seeds", "ml_collections.config_flags"])
SECONDS = 240  # the longest that a mistake may take to be told, with a busy machine in mind


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def start(script, *arguments, environment=None, shell=None, **streams):
    """`python experiments/SCRIPT ARGUMENTS`, with one device, after a command of the `shell`."""
    before = ["sh", "-c", f'{shell} && exec "$@"', "sh"] if shell else []
    return subprocess.Popen(
        [*before, sys.executable, f"experiments/{script}", *map(os.fspath, arguments)],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "XLA_FLAGS": ""}
        | (environment or {}),
        stdin=subprocess.DEVNULL,
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
    """Runs a script to its end: with options by `start`, else in a fork of a warm process."""
    if options or script == "compile.py":  # which is there before JAX
        return finish(start(script, *arguments, **options), seconds)
    with tempfile.TemporaryDirectory() as place:
        streams = [Path(place) / name for name in ("out", "err")]
        arguments = [os.fspath(argument) for argument in arguments]
        process = CONTEXT.Process(target=_main, args=(script, arguments, *streams))
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            raise AssertionError(f"it did not end in {seconds} s: {streams[1].read_text()}")
        return Done(process.exitcode, *(file.read_text(errors="replace") for file in streams))


def _main(script, arguments, *streams):
    """The script, in a process that has imported JAX and done nothing with it yet."""
    for number, file in enumerate(streams, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(ROOT)
    os.environ["XLA_FLAGS"] = ""
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(ROOT / "experiments"))
    runpy.run_path(str(ROOT / "experiments" / script), run_name="__main__")


def quick(npz):
    """The option for a network that is trained in seconds."""
    return f"--config=tests/quick.py:{npz}"


def fill(disk, kibibytes):
    """Leaves so much less on a disk, or nothing where there is not as much."""
    with contextlib.suppress(OSError), (disk / "else").open("wb", buffering=0) as file:
        for _ in range(kibibytes):
            file.write(bytes(1024))


def assert_told(done, message):
    """The command failed with one error in plain words that holds `message`, and no traceback."""
    assert done.code not in (0, None), done.out
    assert "Traceback" not in done.err, done.err
    told = done.err[done.err.rfind("error: ") :]
    assert told.startswith("error: "), done.err
    assert message in told, done.err
    assert done.err.count("error: ") == 1, done.err
