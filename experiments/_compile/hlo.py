"""What the text of a compiled module says: which operations run, how often, and what they move."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(  # name, shape, opcode, operands
    r"^\s+(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\(([^)]*)"
)
_ARRAY = re.compile(
    r"\b(?:f|bf|s|u|c|pred)(?P<bits>\d*)(?:e\d\w*)?\[(?P<sizes>[\d,]*)\](?P<layout>\{[^}]*\})?"
)
# The device does nothing for these, or what it does is in the computations that they call.
_NO_WORK = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "domain"),
    *("opt-barrier", "partition-id", "replica-id", "while", "call", "conditional"),
}
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BRANCHES = ("branch_computations", "true_computation", "false_computation")
_OWN_FILE = r".*/((?:capsjax|experiments|tests)/(?!_compile).*\.py)$"
# What they read of their first operand is as large as what they give.
_SLICES = {"dynamic-slice", "slice", "gather"}


@dataclass(frozen=True)
class Instruction:
    """One line of a module."""

    name: str
    opcode: str
    shape: str  # as in the text; may be a tuple of shapes
    operands: tuple[str, ...]  # their names
    line: str = field(repr=False)

    def called(self, *attributes: str) -> list[str]:
        """Returns the computations that it names as one of `attributes`."""
        names = re.findall(rf"\b(?:{'|'.join(attributes)})=(\{{[^}}]*\}}|%?[\w.\-]+)", self.line)
        return [name.lstrip("%") for group in names for name in re.findall(r"%?[\w.\-]+", group)]

    @property
    def collective(self) -> str | None:
        """The kind of collective that it is or begins."""
        kind = self.opcode.removesuffix("-start")
        return kind if kind in _COLLECTIVES else None

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate for running it once; TPUs only, and not for kernels."""
        match = re.search(r'"estimated_cycles":"(\d+)"', self.line)
        return int(match[1]) if match else None


class Operation(NamedTuple):
    """An instruction that the device executes."""

    instruction: Instruction
    times: int  # in one step: the product of the trips of the loops around it
    in_step: bool  # whether it is in the loop over steps; what is not runs once in a dispatch


class Collective(NamedTuple):
    """The collectives of one kind in a step."""

    number: int
    bytes: int  # of what they give


@dataclass(frozen=True)
class Module:
    """A compiled module's text, read."""

    text: str = field(repr=False)

    @cached_property
    def computations(self) -> Mapping[str, Mapping[str, Instruction]]:
        """Instructions by name, by the name of their computation; the entry's is ""."""
        computations: dict[str, dict[str, Instruction]] = defaultdict(dict)
        inside = None
        for line in self.text.splitlines():
            if head := _COMPUTATION.match(line):
                inside = "" if head["entry"] else head["name"]
            elif line.startswith("}"):
                inside = None
            elif inside is not None and (match := _INSTRUCTION.match(line)):
                name, shape, opcode, rest = match.groups()
                operands = tuple(re.findall(r"%([\w.\-]+)", rest))
                computations[inside][name] = Instruction(name, opcode, shape, operands, line)
        return computations

    @cached_property
    def _computation_of(self) -> Mapping[str, Mapping[str, Instruction]]:
        return {name: inside for inside in self.computations.values() for name in inside}

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """What is executed. A loop without a known number of trips is that over steps."""
        operations = tuple(self._executed("", 1, False))
        if not any(operation.in_step for operation in operations):
            return tuple(operation._replace(in_step=True) for operation in operations)
        return operations

    def _executed(self, name: str, times: int, in_step: bool) -> Iterator[Operation]:
        for instruction in self.computations[name].values():
            if instruction.opcode == "while":
                (body,) = instruction.called("body")
                trips = self._trips(instruction)
                yield from self._executed(body, times * (trips or 1), in_step or trips is None)
            elif instruction.opcode == "call":
                for called in instruction.called("to_apply"):
                    yield from self._executed(called, times, in_step)
            elif instruction.opcode == "conditional":
                called = instruction.called(*_BRANCHES)
                branches = [tuple(self._executed(name, times, in_step)) for name in called]
                yield from max(branches, key=len)  # we do not know which is taken
            elif not (
                instruction.opcode in _NO_WORK
                or instruction.opcode.endswith("-done")
                or 'custom_call_target="AllocateBuffer"' in instruction.line
            ):
                yield Operation(instruction, times, in_step)

    def _trips(self, loop: Instruction) -> int | None:
        """Returns the number of trips that the compiler states or the loop's constants give."""
        if known := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.line):
            return int(known[1])
        (name,) = loop.called("condition")
        condition = self.computations[name]
        root = list(condition.values())[-1]
        if root.opcode != "compare" or "direction=LT" not in root.line:
            return None
        counter, bound = (condition[operand] for operand in root.operands)
        index = re.search(r"index=(\d+)", counter.line)
        if bound.opcode != "constant" or not index:
            return None
        around = self._computation_of[loop.name]
        start = around[around[loop.operands[0]].operands[int(index[1])]]
        while start.opcode == "copy":
            start = around[start.operands[0]]
        return _constant(bound) - _constant(start) if start.opcode == "constant" else None

    @cached_property
    def collectives(self) -> dict[str, Collective]:
        """By kind, in one step."""
        collectives: dict[str, Collective] = {}
        for operation in self.operations:
            if kind := operation.instruction.collective:
                number, size = collectives.get(kind, (0, 0))
                size += operation.times * _collective_bytes(operation.instruction)
                collectives[kind] = Collective(number + operation.times, size)
        return collectives

    def bytes_moved(self, operation: Operation) -> int:
        """Counts the bytes that it reads from and writes to the device's memory in a step."""
        instruction = operation.instruction
        computation = self._computation_of[instruction.name]
        fused = [self.computations[name] for name in instruction.called("calls")]
        # What begins an asynchronous operation also gives its operand again, after the result.
        begins = instruction.opcode in ("copy-start", "async-start")
        total = _size(instruction.shape, 1 if begins else None)
        for number, name in enumerate(instruction.operands):
            if name in computation:
                size = _size(computation[name].shape)
                whole = instruction.opcode in _SLICES and not number
                total += _size(instruction.shape) if whole else size
                if fused and size:
                    total += min(0, _read(fused[0], number) - size)
        return operation.times * total

    def kernel(self, instruction: Instruction) -> str | None:
        """Returns a text that tells the custom kernel that it runs (Pallas on TPUs) from others."""
        called = [self.computations.get(name, {}) for name in instruction.called("calls")]
        for i in (instruction, *(i for inside in called for i in inside.values())):
            if i.opcode == "custom-call" and '"tpu_custom_call"' in i.line:
                around = self._computation_of[instruction.name]
                shapes = [around[name].shape for name in instruction.operands if name in around]
                return f"{shapes} {instruction.shape} {i.line.partition('custom_call_config')[2]}"
        return None

    def source(self, instruction: Instruction) -> str:
        """Returns the `FILE:LINE` of this project that it comes from, or JAX's name for it."""
        files, locations, frames = self._tables
        found = re.search(r"stack_frame_id=(\d+)", instruction.line)
        frame, outer = "", found[1] if found else ""
        while outer in frames and outer != frame:  # the innermost first
            frame = outer
            location, outer = frames[frame]
            file, line = locations[location]
            if own := re.search(_OWN_FILE, files[file][0]):
                return f"{own[1]}:{line}"
        name = re.search(r'op_name="([^"]*)"', instruction.line)
        return name[1].split("/")[-1] if name else ""

    @cached_property
    def _tables(self) -> tuple[dict[str, list[str]], ...]:
        """What stands by number at the module's head: files, lines in them, frames of stacks."""
        # The lines about files alone: those about functions have the same form.
        names = re.search(r"^FileNames\n(.*?)\n\n", self.text, re.M | re.S)
        patterns = (
            (names[1] if names else "", r'^(\d+) "(.*)"$'),
            (self.text, r"^(\d+) \{file_name_id=(\d+).*? line=(\d+)"),
            (self.text, r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?"),
        )
        return tuple(
            {number: columns for number, *columns in re.findall(pattern, text, re.M)}
            for text, pattern in patterns
        )


def _collective_bytes(instruction: Instruction) -> int:
    """Returns the result's size; an asynchronous collective begins with its operands."""
    arrays = list(_ARRAY.finditer(instruction.shape))
    if instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start":
        arrays = arrays[len(instruction.operands) : 2 * len(instruction.operands)]
    return sum(map(_bytes, arrays))


def elements(shape: str) -> int:
    """Returns the number of elements of the largest array in the text of a shape."""
    return max((_elements(array) for array in _ARRAY.finditer(shape)), default=0)


def _size(shape: str, first: int | None = None) -> int:
    """Bytes of a shape's (first) arrays in main memory; S(1) and the like is on the chip."""
    arrays = list(_ARRAY.finditer(shape))[:first]
    return sum(_bytes(a) for a in arrays if not re.search(r"S\([1-9]", a["layout"] or ""))


def _bytes(array: re.Match[str]) -> int:
    return math.ceil(int(array["bits"] or 8) * _elements(array) / 8)


def _elements(array: re.Match[str]) -> int:
    return math.prod(int(size) for size in array["sizes"].split(",") if size)


def _read(fused: Mapping[str, Instruction], number: int) -> int:
    """Counts the bytes that a fusion reads of its operand `number`: only the slices it takes."""
    parameters = [i for i in fused.values() if i.opcode == "parameter"]
    (own,) = (i for i in parameters if re.search(rf"parameter\({number}\)", i.line))
    users = [i for i in fused.values() if own.name in i.operands]
    if users and all(i.opcode in _SLICES and i.operands[0] == own.name for i in users):
        return sum(_size(i.shape) for i in users)
    return _size(own.shape)


def _constant(instruction: Instruction) -> int:
    (value,) = re.findall(r" constant\((-?\d+)\)", instruction.line)
    return int(value)
