"""What is told of a compiled program: as JSON, and to a person."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from _compile.crosscompile import Compiled

LARGEST = 5


def to_json(compiled: Compiled, *, images: int | None = None) -> dict[str, Any]:
    """Returns what is known of a program, whose steps do so many images on all devices together."""
    milliseconds = compiled.milliseconds
    limit = compiled.target.chip.memory
    return {
        "compile_cpu_seconds": round(compiled.cpu_seconds, 1),
        "compile_seconds": round(compiled.wall_seconds, 1),
        "memory": compiled.memory._asdict() | {"total": compiled.memory.total},
        "memory_of_device": limit,
        "largest_buffers": [
            {"name": b.instruction, "shape": b.shape, "bytes": b.bytes, "on_chip": b.on_chip}
            for b in compiled.buffers[:LARGEST]
        ],
        "operations": len(compiled.module.operations),
        "bytes_moved": compiled.bytes_moved,
        "collectives": {kind: c._asdict() for kind, c in compiled.module.collectives.items()},
        "largest_operations": [cost._asdict() for cost in compiled.costs[:LARGEST]],
        "kernels": _kernels(compiled),
        "estimated": {
            "cycles": compiled.cycles,
            "cycles_per_dispatch": compiled.cycles_of(in_step=False),
            "milliseconds": milliseconds,
            "images": images,
            "images_per_second": 1e3 * images / milliseconds if milliseconds and images else None,
        },
    }


def _kernels(compiled: Compiled) -> dict[str, Any]:
    """Lists a TPU's custom kernels by name; of a GPU's, those of most registers and spills."""
    if compiled.target.platform == "tpu":
        return {name: kernel._asdict() for name, kernel in compiled.tpu_kernels.items()}
    worst = sorted(compiled.gpu_kernels, key=lambda k: (-k.spilled, -k.registers))
    return {k.name: {"registers": k.registers, "spilled": k.spilled} for k in worst[:LARGEST]}


def show(console: Console, name: str, record: dict[str, Any]) -> None:
    """Prints what `to_json` gave."""
    table = Table(title=name, title_justify="left", show_header=False, box=None)
    memory, limit = record["memory"], record["memory_of_device"]
    parts = ", ".join(f"{part} {_size(memory[part])}" for part in memory if part != "total")
    share = f" of {_size(limit)}: it fits" if limit else ""
    rows = {
        "compiling": f"{record['compile_cpu_seconds']} s of CPU time, "
        f"{record['compile_seconds']} s by the clock",
        "memory, each device": f"{_size(memory['total'])}{share} ({parts})",
        "operations": f"{record['operations']:,}",
        "read and written": f"{_size(record['bytes_moved'])} in a step",
        "collectives": _collectives(record["collectives"]),
    }
    estimated = record["estimated"]
    if estimated["milliseconds"] is not None:
        speed = estimated["images_per_second"]
        rows["estimate, not measured"] = (
            f"{estimated['cycles']:,} cycles, {estimated['milliseconds']:.3g} ms for a step"
            + (f", {speed:,.0f} images/s on all devices" if speed else "")
            + "; without waiting for other devices"
        )
    for label, text in rows.items():
        table.add_row(label, escape(text))
    console.print(table)
    costs = Table("operation", "from", "cycles", "bytes", title="the largest operations")
    for cost in record["largest_operations"]:
        cycles = "" if cost["cycles"] is None else f"{cost['cycles']:,}"
        costs.add_row(cost["name"], escape(cost["source"]), cycles, _size(cost["bytes"]))
    console.print(costs)


def _collectives(collectives: dict[str, Any]) -> str:
    each = (f"{c['number']} {kind}, {_size(c['bytes'])}" for kind, c in collectives.items())
    return "; ".join(each) or "none"


def _size(count: int) -> str:
    if count < 1e6:
        return f"{count / 1e3:,.1f} kB"
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"
