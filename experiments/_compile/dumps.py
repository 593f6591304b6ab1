"""What compilers write beside a program: its memory, a TPU's instructions, a GPU's kernels.

XLA estimates no cycles for a kernel (Pallas, Mosaic). A TPU issues one bundle of instructions in
each cycle in which it does not wait, so a kernel takes about as many cycles as it has bundles, each
times the trips of the loops around it. Waiting is left out, and what a branch skips is counted.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from _compile import compilers

_ALLOCATION = re.compile(r"^allocation \d+: size (?P<bytes>\d+), (?P<kind>.*):$")
_VALUE = re.compile(
    r"^ value: <\d+ (?P<name>\S+?)(?:\{[\d,]*\})? @\d+> \(size=(?P<bytes>\d+),offset=\d+\): "
    r"(?P<shape>.*)$"
)
# Memory on a TPU's chip has a color; what a reduction's function takes and gives is thread-local.
_ELSEWHERE = re.compile(r"\bcolor [1-9]|thread-local")

# As in "  0x2a LB: >> { … } /* Start region 12 */".
_BUNDLE = re.compile(r"^\s*(?:0x)?(?P<address>[0-9a-f]+)\s+(?:\w\w)?\s*:[\s>]*\{(?P<body>.*)$")
_BRANCH = re.compile(r"sbr\.rel (?:\((?P<predicate>!?%\w+)\) )?target = \$region(?P<region>\d+)")
# Bundles after a branch that are executed whether it is taken or not.
_DELAY = 4


class Buffer(NamedTuple):
    """One value that lies in memory while the program runs."""

    instruction: str  # the name of the instruction that makes it
    shape: str  # as in the module's text
    bytes: int  # with the padding of its layout
    # what the compiler says of its allocation, such as "parameter 0" or "preallocated-temp"
    kind: str

    @property
    def on_chip(self) -> bool:
        """Whether it is in memory on the chip (a TPU's VMEM), and not in the device's own."""
        return bool(_ELSEWHERE.search(self.kind))

    @property
    def temporary(self) -> bool:
        """Whether it is neither an argument nor a constant (a result may be)."""
        return "parameter" not in self.kind and "constant" not in self.kind


def read_memory(folder: Path) -> tuple[int, tuple[Buffer, ...]]:
    """Reads the bytes of main memory that a compilation needs, and all buffers, the largest first.

    A compilation that failed for lack of memory left them too.
    """
    (path,) = folder.glob("*buffer-assignment.txt")
    buffers, kind, total = [], "", 0
    for line in path.read_text().splitlines():
        if allocation := _ALLOCATION.match(line):
            kind = allocation["kind"]
            total += 0 if _ELSEWHERE.search(kind) else int(allocation["bytes"])
        elif (value := _VALUE.match(line)) and "thread-local" not in kind:
            buffers.append(Buffer(value["name"], value["shape"], int(value["bytes"]), kind))
    return total, tuple(sorted(buffers, key=lambda buffer: -buffer.bytes))


class TpuKernel(NamedTuple):
    """A kernel's instructions, counted."""

    bundles: int  # in the program
    cycles: int  # bundles times trips; a loop whose trips are not in the program counts as one


def read_bundles(folder: Path) -> dict[str, str]:
    """Reads each operation's final instructions, by its name in the module; removes the files."""
    programs = {}
    for path in sorted(folder.iterdir()):
        if match := re.fullmatch(r"\d+-(.+)-\d+-final_bundles\.txt", path.name):
            programs[match[1]] = path.read_text()
        path.unlink()
    return programs


def count_bundles(text: str) -> TpuKernel:
    """Counts bundles and cycles of one operation."""
    bundles = {int(m["address"], 16): m["body"] for m in map(_BUNDLE.match, text.splitlines()) if m}
    starts, times = {}, dict.fromkeys(bundles, 1)
    for address, body in bundles.items():
        starts |= dict.fromkeys(re.findall(r"[Ss]tart region (\d+)", body), address)
    for address, body in bundles.items():
        branch = _BRANCH.search(body)
        if branch and starts.get(branch["region"], address + 1) <= address:  # a branch back
            trips = _trips(bundles, branch["predicate"]) or 1
            for inside in range(starts[branch["region"]], address + _DELAY + 1):
                if inside in times:
                    times[inside] *= trips
    return TpuKernel(len(bundles), sum(times.values()))


def _trips(bundles: Mapping[int, str], predicate: str | None) -> int | None:
    """Returns the bound of a loop that counts from 0 by 1."""
    test = re.compile(
        rf"{re.escape((predicate or '').lstrip('!'))} = scmp\.ge\.s32\.totalorder %\w+, (\d+)"
        r" /\* loop exit test"
    )
    found = filter(None, map(test.search, bundles.values() if predicate else ()))
    return next((int(match[1]) for match in found), None)


class GpuKernel(NamedTuple):
    """One kernel as NVIDIA's own assembler makes it."""

    name: str  # of the kernel
    registers: int  # of each thread
    spilled: int  # bytes that a thread writes to memory for want of registers


def read_ptx(folder: Path) -> tuple[str, ...]:
    """Reads all programs for GPUs in the dump of a compilation."""
    texts = (path.read_text() for path in sorted(folder.glob("*.ptx")))
    return tuple(text for text in texts if ".entry" in text)


def assemble(programs: Iterable[str]) -> tuple[GpuKernel, ...]:
    """Assembles the kernels of `programs`."""
    kernels: list[GpuKernel] = []
    for text in programs:
        (architecture,) = re.findall(r"^\.target\s+(\w+)", text, re.M)[:1]
        ptxas = compilers.folder() / "gpu/nvidia/cuda_nvcc/bin/ptxas"
        command = [ptxas, "-v", f"-arch={architecture}", "-o", "/dev/null"]
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([*command, file.name], capture_output=True, text=True, check=True)
        kernels += (
            GpuKernel(name, int(registers), int(spilled))
            for name, spilled, registers in re.findall(
                r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) reg",
                done.stderr,
                re.S,
            )
        )
    return tuple(kernels)
