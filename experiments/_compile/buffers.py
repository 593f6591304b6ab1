"""What a compiled program stores: the compiler's assignment of values to memory."""

import re
from pathlib import Path
from typing import NamedTuple

from _compile import hlo

_ALLOCATION = re.compile(r"^allocation \d+: size (?P<bytes>\d+), (?P<kind>.*):$")
_VALUE = re.compile(
    r"^ value: <\d+ (?P<name>\S+?)(?:\{[\d,]*\})? @\d+> \(size=(?P<bytes>\d+),offset=\d+\): "
    r"(?P<shape>.*)$"
)
# Memory on a TPU's chip has a color; what a reduction's function takes and gives is thread-local.
_ELSEWHERE = re.compile(r"\bcolor [1-9]|thread-local")


class Buffer(NamedTuple):
    """One value that lies in memory while the program runs."""

    instruction: str  # the name of the instruction that makes it
    shape: str  # as in the module's text
    bytes: int  # with the padding of its layout
    elements: int  # of its largest array
    # what the compiler says of its allocation, such as "parameter 0" or "preallocated-temp"
    kind: str
    on_chip: bool  # whether it is in memory on the chip (a TPU's VMEM), and not in the device's own

    @property
    def temporary(self) -> bool:
        """Whether it is neither an argument nor a constant (a result may be)."""
        return "parameter" not in self.kind and "constant" not in self.kind


class Assignment(NamedTuple):
    """All of a program's memory."""

    bytes: int  # of main memory, arguments and results included
    buffers: tuple[Buffer, ...]  # what lies in it and on the chip, the largest first


def read(folder: Path) -> Assignment:
    """Reads the dump of a compilation, even if it failed for lack of memory."""
    (path,) = folder.glob("*buffer-assignment.txt")
    values, kind, total = [], "", 0
    for line in path.read_text().splitlines():
        if allocation := _ALLOCATION.match(line):
            kind = allocation["kind"]
            if not _ELSEWHERE.search(kind):
                total += int(allocation["bytes"])
        elif value := _VALUE.match(line):
            shape = value["shape"]
            if "thread-local" not in kind:
                values.append(
                    Buffer(
                        value["name"],
                        shape,
                        int(value["bytes"]),
                        hlo.elements(shape),
                        kind,
                        bool(_ELSEWHERE.search(kind)),
                    )
                )
    return Assignment(total, tuple(sorted(values, key=lambda buffer: -buffer.bytes)))
