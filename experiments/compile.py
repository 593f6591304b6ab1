"""Compiles a run's programs for TPUs or GPUs, on any machine, and reports memory and cost.

  python experiments/compile.py --fetch     # once: the compilers, 1.3 GB
  python experiments/compile.py --config=configs/sabour2017_mnist.py --target=v5e:2x4
  python experiments/compile.py --config=configs/sabour2017_mnist.py --target=v5e:16x16 \\
      --config.training.batch_size=4096 --output=compiled.json

XLA's own compilers make the programs that experiments/train.py runs; no device is needed. Targets
are slices of TPUs (v5e:2x2 … v5e:16x16, v5p:4x4x4, v6e:2x4, TPU7x:2x2x1), GPUs (a100, h100, h200;
h100:8 for eight of them), and cpu. Cycles, and what follows from them (milliseconds, images per
second), are estimates; other numbers are not.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import _cli
from _compile import catalogue, compilers
from _provenance import commit
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from capsjax._files import write_atomically

PROGRAMS = ("training", "validation")


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    _cli.add_config(parser, required=False)
    option = parser.add_argument
    option("--target", metavar="NAME", help="what to compile for, such as v5e:2x4 or h100")
    option("--chips", type=int, metavar="N", help="use only its first N devices")
    option("--program", nargs="+", choices=PROGRAMS, default=PROGRAMS, help="only these")
    text = "instead of a run: a procedure at its size in benchmark.py routing, on one device"
    option("--routing", choices=(*catalogue.PROCEDURES, *catalogue.SLOTS), help=text)
    option("--gradient", action="store_true", help="with --routing: forward and backward")
    option("--output", type=_cli.file(".json"), metavar="FILE.json", help="write everything to it")
    option("--fetch", action="store_true", help="fetch the compilers that are missing")
    text = "compile everything in docs/accelerators.md and docs/scaling.md; run again, it resumes"
    option("--list", action="store_true", help=text)
    text = "with --list: give up on a program that takes longer to compile"
    option("--cpu_seconds", type=int, default=300, metavar="S", help=text)
    return parser


def main(args: argparse.Namespace) -> None:
    """Fetches, compiles the list, or compiles what was asked for."""
    if args.fetch:
        compilers.fetch()
        print(f"The compilers are in {compilers.folder()}.")
    elif args.list:
        run_list(args)
    elif args.target is None or (args.config is None) == (args.routing is None):
        raise ValueError(
            "--target and either --config or --routing must be given (or --list, or --fetch)"
        )
    else:
        run(args)


def run(args: argparse.Namespace) -> None:
    """Compiles, prints, writes."""
    import jax
    from _compile import targets
    from _compile.crosscompile import DoesNotFit, compile_for, compile_lowered
    from _compile.programs import procedure, programs

    terminal, target = _cli.table_console(), targets.find(args.target)
    devices = targets.devices(target)
    if args.chips is not None and not 1 <= args.chips <= len(devices):
        raise ValueError(f"--chips: {args.target} has 1 to {len(devices)}, got {args.chips}")
    devices = devices[: args.chips]
    result: dict[str, Any] = {
        "target": args.target,
        "devices": len(devices),
        "hosts": len({device.process_index for device in devices}),
        "commit": commit(),
        "jax": jax.__version__,
        "compiler": compilers.version(target.platform),
        "programs": {},
    }
    if args.routing:
        function, shapes, images = procedure(args.routing, gradient=args.gradient)
        program = "forward+backward" if args.gradient else "forward"
        compilations = {program: partial(compile_for, args.target, function, *shapes)}
        terminal.print(f"{args.routing} routing for {devices[0].device_kind}")
    else:
        config = _cli.config_of(args)
        name, images = config.model.name, config.training.batch_size
        result |= {"batch_size": images, "model": name, "data": config.data.name}
        lowered = programs(config, devices)
        chosen = [program for program in args.program if program in lowered]
        compilations = {p: partial(compile_lowered, target, lowered[p]) for p in chosen}
        terminal.print(
            f"{name} on {config.data.name}, batch {images}, for {len(devices)} × "
            f"{devices[0].device_kind} ({result['hosts']} hosts)"
        )
    too_large = []
    for program, compile_program in compilations.items():
        terminal.print(f"{program}: compiling …")
        try:
            record = compile_program().to_json(images)
            show(terminal, program, record)
        except DoesNotFit as error:
            record = {"does_not_fit": str(error)}
            too_large.append(f"{program}: {error}")
        result["programs"][program] = record
    if args.output:
        write_atomically(args.output, json.dumps(result, indent=2) + "\n")
    if too_large:
        raise ValueError("; ".join(too_large))


def show(console: Console, name: str, record: dict[str, Any]) -> None:
    """Prints what is told of a program."""
    table = Table(title=name, title_justify="left", show_header=False, box=None)
    memory, limit, estimated = (record[k] for k in ("memory", "memory_of_device", "estimated"))
    parts = ", ".join(f"{part} {decimal(memory[part])}" for part in memory if part != "total")
    share = f" of {decimal(limit)}: it fits" if limit else ""
    every = record["collectives"].items()
    collectives = "; ".join(f"{c['number']} {kind}, {decimal(c['bytes'])}" for kind, c in every)
    cpu, wall = record["compile_cpu_seconds"], record["compile_seconds"]
    table.add_row("compiling", f"{cpu} s of CPU time, {wall} s by the clock")
    table.add_row("memory, each device", f"{decimal(memory['total'])}{share} ({parts})")
    table.add_row("operations", f"{record['operations']:,}")
    table.add_row("read and written", f"{decimal(record['bytes_moved'])} in a step")
    table.add_row("collectives", collectives or "none")
    if estimated["milliseconds"] is not None:
        table.add_row(
            "estimate, not measured",
            f"{estimated['cycles']:,} cycles, {estimated['milliseconds']:.3g} ms for a step, "
            f"{estimated['images_per_second']:,.0f} images/s on all devices; without waiting for "
            "other devices",
        )
    console.print(table)
    costs = Table("operation", "from", "cycles", "bytes", title="the largest operations")
    for cost in record["largest_operations"]:
        cycles = "" if cost["cycles"] is None else f"{cost['cycles']:,}"
        costs.add_row(cost["name"], escape(cost["source"]), cycles, decimal(cost["bytes"]))
    console.print(costs)


def run_list(args: argparse.Namespace) -> None:
    """Compiles the list, or what is left of it, and writes what it is shown in."""
    from _compile import pages

    for platform in ("tpu", "gpu"):
        compilers.check(platform)
    chosen = catalogue.entries()
    records = []
    done = catalogue.compile_all(chosen, Path("runs/compiled"), cpu_seconds=args.cpu_seconds)
    for number, (entry, record) in enumerate(done, start=1):
        records.append(record)
        print(f"{number}/{len(chosen)} {entry.key}: {pages.in_short(record)}", flush=True)
    pages.write(records)


if __name__ == "__main__":
    compilers.enable()
    _cli.run(parser(), main)
