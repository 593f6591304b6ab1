"""Cycles of a kernel on a TPU, from its instructions as the compiler leaves them.

XLA estimates no cycles for a kernel (Pallas, Mosaic). A TPU issues one bundle of instructions in
each cycle in which it does not wait, so a kernel takes about as many cycles as it has bundles, each
times the trips of the loops around it. Waiting is left out, and what a branch skips is counted.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# As in "  0x2a LB: >> { … } /* Start region 12 */".
_BUNDLE = re.compile(r"^\s*(?:0x)?(?P<address>[0-9a-f]+)\s+(?:\w\w)?\s*:[\s>]*\{(?P<body>.*)$")
_BRANCH = re.compile(r"sbr\.rel (?:\((?P<predicate>!?%\w+)\) )?target = \$region(?P<region>\d+)")
# Bundles after a branch that are executed whether it is taken or not.
_DELAY = 4


class Kernel(NamedTuple):
    """What is counted."""

    bundles: int  # in the program
    cycles: int  # bundles times trips
    unknown_loops: int  # loops whose trips are not in the program; they are counted as one


class _Loop(NamedTuple):
    first: int
    last: int
    trips: int | None


def read(folder: Path) -> dict[str, str]:
    """Reads each operation's final instructions, by its name in the module; removes the files."""
    programs = {}
    for path in sorted(folder.iterdir()):
        if match := re.fullmatch(r"\d+-(.+)-\d+-final_bundles\.txt", path.name):
            programs[match[1]] = path.read_text()
        path.unlink()
    return programs


def count(text: str) -> Kernel:
    """Bundles and cycles of one operation."""
    bundles = {int(m["address"], 16): m["body"] for m in map(_BUNDLE.match, text.splitlines()) if m}
    loops = _loops(bundles)
    cycles = 0
    for address in bundles:
        times = 1
        for loop in loops:
            if loop.first <= address <= loop.last:
                times *= loop.trips or 1
        cycles += times
    return Kernel(len(bundles), cycles, sum(loop.trips is None for loop in loops))


def _loops(bundles: Mapping[int, str]) -> list[_Loop]:
    """Returns every branch back, with the bound that its condition is tested against."""
    starts = {}
    for address, body in bundles.items():
        for region in re.findall(r"[Ss]tart region (\d+)", body):
            starts[region] = address
    loops = []
    for address, body in bundles.items():
        branch = _BRANCH.search(body)
        if branch and starts.get(branch["region"], address + 1) <= address:
            first = starts[branch["region"]]
            loops.append(_Loop(first, address + _DELAY, _trips(bundles, branch["predicate"])))
    return loops


def _trips(bundles: Mapping[int, str], predicate: str | None) -> int | None:
    """Returns the bound of a loop that counts from 0 by 1."""
    if predicate:
        test = re.compile(
            rf"{re.escape(predicate.lstrip('!'))} = scmp\.ge\.s32\.totalorder %\w+, (\d+)"
            r" /\* loop exit test"
        )
        for body in bundles.values():
            if match := test.search(body):
                return int(match[1])
    return None
