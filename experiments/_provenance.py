"""Where a number came from: the code, its versions, and the machine."""

import functools
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


@functools.cache
def commit() -> str:
    """Returns the commit of this code, with "-dirty" if files differ from it."""
    clone = Path(__file__).parents[1]
    if not (clone / ".git").exists():  # installed, maybe inside a repository of something else
        return "unknown"
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def versions() -> dict[str, str]:
    """Returns the versions of the software that the numbers depend on."""
    packages = {name: version(name) for name in ("capsjax", "jax", "flax", "numpy")}
    return packages | {"python": platform.python_version()}


def machine() -> str:
    """Returns the processor of this machine, and the cores that this process may use."""
    from capsjax.runs.about import cores

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    name = " and ".join(sorted(names)) or platform.processor() or platform.machine()
    return f"{name}, {cores()} {'core' if cores() == 1 else 'cores'}"
