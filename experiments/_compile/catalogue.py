"""The list behind docs/accelerators.md and docs/scaling.md, and how it is compiled.

Each program is compiled in a process of its own, with a limit on its CPU time, and its record kept
until the sources or a compiler change: a list that was interrupted goes on.
"""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from _compile import compilers
from capsjax._files import write_atomically

ROOT = Path(__file__).parents[2]
# How messages of `crosscompile` about a program can be told from others.
DOES_NOT_FIT, FAILED = "too much; its largest buffers", "the compiler failed"
SCRIPT = ROOT / "experiments/compile.py"
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


@dataclass(frozen=True)
class Entry:
    """One program of the list."""

    group: str  # "networks", "routing" or "scaling"
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
    listed = []
    for target in HERE:
        for name in (*PROCEDURES, *SLOTS):
            for program in ("forward", "forward+backward"):
                options = [f"--routing={name}"]
                if program != "forward":
                    options.append("--gradient")
                listed.append(Entry("routing", name, program, target, tuple(options)))
    for target in GPUS:
        for name in PROCEDURES[:-1]:
            options = (f"--routing={name}", "--gradient")
            listed.append(Entry("routing", name, "forward+backward", target, options))
    for target in HERE:
        for name in (*USERS, *FAMILIES):
            listed.append(_network(name, "training", target))
        for name in USERS:
            listed.append(_network(name, "validation", target))
    for name in USERS:
        for target in OTHERS:
            listed.append(_network(name, "training", target))
        listed.append(_network(name, "training", POD, f"--config.training.batch_size={POD_BATCH}"))
    listed += [_network(name, "training", target) for target in GPUS for name in EACH_FAMILY]
    for slices in SCALES.values():
        for chips, target in slices.items():
            for batch in SCALED_BATCHES:
                size = f"--config.training.batch_size={batch * chips}"
                listed.append(
                    _network(SCALED, "training", target, size, f"--chips={chips}", group="scaling")
                )
    return listed


def _network(name: str, program: str, target: str, *options: str, group: str = "networks") -> Entry:
    file, _, which = name.partition(":")
    config = f"--config=configs/{file}.py" + (f":{which}" if which else "")
    return Entry(group, name, program, target, (config, f"--program={program}", *options))


def compile_all(
    chosen: Iterable[Entry], results: Path, *, cpu_seconds: int, command: Sequence[str] = ()
) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Compiles every entry; the folder `results` keeps a file of each record.

    A compilation that takes more than `cpu_seconds` is given up; its record says so, as it does of
    a program that does not fit and of one that the compiler fails to compile. `command` runs the
    script.
    """
    results.mkdir(parents=True, exist_ok=True)
    digest = sources()
    for entry in chosen:
        path = results / f"{entry.key}.json"
        if path.exists() and (record := json.loads(path.read_text()))["sources"] == digest:
            yield entry, record
            continue
        record = _compile(entry, path, cpu_seconds, command or (sys.executable, str(SCRIPT)))
        about = asdict(entry) | {"options": list(entry.options), "sources": digest}
        record = about | record
        write_atomically(path, json.dumps(record, indent=1) + "\n")
        yield entry, record


def _compile(entry: Entry, path: Path, cpu_seconds: int, command: Sequence[str]) -> dict[str, Any]:
    output = path.with_suffix(".new")
    arguments = (f"--target={entry.target}", f"--output={output}", f"--cpu_seconds={cpu_seconds}")
    done = subprocess.run(
        [*command, *arguments, *entry.options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # The second is what a process gets that goes on after the first.
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"not_finished": cpu_seconds}
    if done.returncode < 0:
        return {"failed": f"the compiler crashed ({signal.Signals(-done.returncode).name})"}
    message = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].removeprefix("error: ")
    for name, sign in (("does_not_fit", DOES_NOT_FIT), ("failed", FAILED)):
        if done.returncode and sign in message:
            return {name: message}
    if done.returncode:
        raise ValueError(f"{entry.name} for {entry.target}: {message}")
    record = json.loads(output.read_text())
    output.unlink()
    (program,) = record.pop("programs").values()
    return record | program


def sources() -> str:
    """Changes when the sources, JAX or a compiler do."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in ("jax", "flax"):
        digest.update(metadata.version(name).encode())
    for platform in ("tpu", "gpu"):
        digest.update(compilers.version(platform).encode())
    return digest.hexdigest()[:16]
