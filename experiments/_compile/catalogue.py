"""The list behind docs/accelerators.md and docs/scaling.md, and how it is compiled.

Each program is compiled in a process of its own, with a limit on its CPU time, and its record kept
until the sources or a compiler change: a list that was interrupted goes on.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from _compile import compilers
from capsjax._files import digest, write_atomically

ROOT = Path(__file__).parents[2]
SCRIPT = (sys.executable, str(ROOT / "experiments/compile.py"))
# How messages of `crosscompile` about a program can be told from others.
SIGNS = {"does_not_fit": "too much; its largest buffers", "failed": "the compiler failed"}
# What a record depends on.
SOURCES = ("capsjax", "configs", "experiments/_compile", "experiments/_benchmark")

# Recipes: a file of configs/ and what comes after the colon.
USERS = ("sabour2017_mnist", "choi2019:mnist", "tsai2020_cifar")
FAMILIES = (
    "gu2021_affnist:gu2021_convnet_avg",
    "gu2021_affnist:gu2021_convnet_cr_sf",
    "lin2018_multimnist",
    "tsai2020_cifar:tsai2020_dynamic_cifar10_resnet",
    "tsai2020_cifar:tsai2020_em_cifar10_resnet",
    "tsai2020_cifar:tsai2020_resnet18_cifar10",
)
EACH_FAMILY = (*USERS, "gu2021_affnist:gu2021_convnet_cr_sf", "lin2018_multimnist")
PROCEDURES = ("uniform", "dynamic", "em", "inverted_attention", "attention", "dynamic_large")
SLOTS = ("slots_7", "slots_7_plain", "slots_11", "slots_11_plain")
HERE, OTHERS, POD = ("v5e:2x2", "h100"), ("v5p:2x2x1", "v6e:2x2"), "v5e:16x16"
GPUS = ("t4", "a100", "b200")  # besides that of HERE: one without kernels, an older and a newer one
POD_BATCH = 16 * 256
# Chips, and the slice that has so many; one chip is the first of a slice.
SCALES = {
    "v5e": {1: "v5e:2x2", 8: "v5e:2x4", 64: "v5e:8x8", 256: "v5e:16x16"},
    "v5p": {1: "v5p:2x2x1", 8: "v5p:2x2x2", 64: "v5p:4x4x4", 256: "v5p:4x8x8"},
}
# The network with the most parameters for its arithmetic: whose gradients take longest to add up.
SCALED, SCALED_BATCHES = "sabour2017_mnist", (16, 128)


class Entry(NamedTuple):
    """One program of the list."""

    group: str  # "routing", "networks" or "scaling"
    name: str  # of the recipe or the procedure
    program: str  # "training", "validation", "forward" or "forward+backward"
    target: str  # what it is compiled for
    options: tuple[str, ...]  # of experiments/compile.py, beyond the target

    @property
    def key(self) -> str:
        """A file name."""
        words = (self.group, self.name, self.program, self.target, *self.options[1:])
        return "_".join(word.strip("-") for word in words).replace(":", "-").replace("/", "-")


def entries() -> list[Entry]:
    """Returns all entries, the quickest to compile first within each group."""
    of_routing = [
        _routing(name, target, backward)
        for target in HERE
        for name in (*PROCEDURES, *SLOTS)
        for backward in (False, True)
    ]
    of_routing += [_routing(name, target, True) for target in GPUS for name in PROCEDURES[:-1]]
    networks = []
    for target in HERE:
        networks += [_network(name, "training", target) for name in (*USERS, *FAMILIES)]
        networks += [_network(name, "validation", target) for name in USERS]
    for name in USERS:
        networks += [_network(name, "training", target) for target in OTHERS]
        networks.append(_network(name, "training", POD, _batch(POD_BATCH)))
    networks += [_network(name, "training", target) for target in GPUS for name in EACH_FAMILY]
    scaling = [
        _network(SCALED, "training", target, _batch(batch * chips), f"--chips={chips}")
        for slices in SCALES.values()
        for chips, target in slices.items()
        for batch in SCALED_BATCHES
    ]
    return [*of_routing, *networks, *(entry._replace(group="scaling") for entry in scaling)]


def _routing(name: str, target: str, backward: bool) -> Entry:
    gradient = ("--gradient",) if backward else ()
    program = "forward+backward" if backward else "forward"
    return Entry("routing", name, program, target, (f"--routing={name}", *gradient))


def _network(name: str, program: str, target: str, *options: str) -> Entry:
    file, colon, which = name.partition(":")
    config = f"--config=configs/{file}.py{colon}{which}"
    return Entry("networks", name, program, target, (config, f"--program={program}", *options))


def _batch(size: int) -> str:
    return f"--config.training.batch_size={size}"


def compile_all(
    chosen: Iterable[Entry], results: Path, *, cpu_seconds: int, command: Sequence[str] = SCRIPT
) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Compiles every entry by `command`; the folder `results` keeps a file of each record.

    A record also tells of what took more than `cpu_seconds`, did not fit or failed.
    """
    results.mkdir(parents=True, exist_ok=True)
    made_from = sources()
    for entry in chosen:
        path = results / f"{entry.key}.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        if record.get("sources") != made_from:
            about = entry._asdict() | {"options": list(entry.options), "sources": made_from}
            record = about | _compile(entry, path.with_suffix(".new"), cpu_seconds, command)
            write_atomically(path, json.dumps(record, indent=1) + "\n")
        yield entry, record


def _compile(
    entry: Entry, output: Path, cpu_seconds: int, command: Sequence[str]
) -> dict[str, Any]:
    limited = ["sh", "-c", f'ulimit -t {cpu_seconds} && exec "$@"', "sh", *command]
    words = [*limited, f"--target={entry.target}", f"--output={output}", *entry.options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    # The second is what a process gets that goes on after the first.
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"not_finished": cpu_seconds}
    if done.returncode < 0:
        return {"failed": f"the compiler crashed ({signal.Signals(-done.returncode).name})"}
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].removeprefix("error: ")
        for name, sign in SIGNS.items():
            if sign in said:
                return {name: said}
        raise ValueError(f"{entry.name} for {entry.target}: {said}")
    record = json.loads(output.read_text())
    output.unlink()
    (program,) = record.pop("programs").values()
    return record | program


def sources() -> str:
    """Changes when the sources, JAX or a compiler do."""
    files = (path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    versions = [metadata.version(name) for name in ("jax", "flax")]
    versions += map(compilers.version, ("tpu", "gpu"))
    return digest(*(file.read_bytes() for file in files), *versions)[:16]
