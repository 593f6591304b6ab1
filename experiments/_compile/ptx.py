"""Registers and spills of GPU kernels, by NVIDIA's own assembler."""

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from _compile import compilers


class Kernel(NamedTuple):
    """One kernel as it is assembled."""

    name: str  # of the kernel
    registers: int  # of each thread
    spilled: int  # bytes that a thread writes to memory for want of registers


def read(folder: Path) -> tuple[str, ...]:
    """Reads all programs in the dump of a compilation."""
    texts = (path.read_text() for path in sorted(folder.glob("*.ptx")))
    return tuple(text for text in texts if ".entry" in text)


def assemble(programs: Iterable[str]) -> tuple[Kernel, ...]:
    """Assembles the kernels of `programs`."""
    kernels: list[Kernel] = []
    for text in programs:
        (architecture,) = re.findall(r"^\.target\s+(\w+)", text, re.M)[:1]
        command = [compilers.assembler(), "-v", f"-arch={architecture}", "-o", "/dev/null"]
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([*command, file.name], capture_output=True, text=True, check=True)
        kernels += (
            Kernel(name, int(registers), int(spilled))
            for name, spilled, registers in re.findall(
                r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) reg",
                done.stderr,
                re.S,
            )
        )
    return tuple(kernels)
