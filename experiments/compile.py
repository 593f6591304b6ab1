"""Compiles a run's programs for TPUs or GPUs, on any machine, and says what came out.

  python experiments/compile.py --fetch     # once: the compilers, 1.3 GB
  python experiments/compile.py --config=configs/sabour2017_mnist.py --target=v5e:2x4
  python experiments/compile.py --config=configs/sabour2017_mnist.py --target=v5e:16x16 \\
      --config.training.batch_size=4096 --evaluate --output=compiled.json

XLA's own compilers make the real programs (training exactly as experiments/train.py drives it,
validation, evaluation); no device is needed. Targets are slices of TPUs (v5e:2x2 … v5e:16x16,
v5p:4x4x4, v6e:2x4, TPU7x:2x2x1), GPUs (a100, h100, h200; h100:8 for eight of them), and cpu.
Memory, operations, collectives and the time to compile are facts. Cycles are the compiler's
estimate, and what is made of them (milliseconds, images per second) are estimates too.
"""

import argparse
import json
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _cli
from _compile import catalogue, compilers

if TYPE_CHECKING:
    from _compile.crosscompile import Compiled

CPU_SECONDS_OF_EACH = 300
PROGRAMS = ("training", "validation", "evaluation")
GROUPS = ("routing", "networks", "scaling")


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    _cli.add_config(parser, required=False)
    parser.add_argument(
        "--target", metavar="NAME", help="what to compile for, such as v5e:2x4 or h100"
    )
    parser.add_argument(
        "--chips",
        type=int,
        metavar="N",
        help="only so many of the target's devices, the first ones",
    )
    parser.add_argument("--program", choices=PROGRAMS, help="only this one of a run's programs")
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="also the program of experiments/evaluate.py, 128 images on each device",
    )
    parser.add_argument(
        "--largest_batch",
        "--largest-batch",
        action="store_true",
        help="also find the largest batch whose training fits, to a sixteenth, compiling again and "
        "again",
    )
    parser.add_argument(
        "--routing",
        choices=(*catalogue.PROCEDURES, *catalogue.SLOTS),
        help="not a run but a procedure at its size in experiments/benchmark.py routing, on one "
        "device",
    )
    parser.add_argument(
        "--gradient", action="store_true", help="with --routing: forward and backward"
    )
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="write everything to it")
    parser.add_argument(
        "--cpu_seconds",
        type=int,
        metavar="S",
        help="end when compiling takes more CPU time than this; default: no limit; with --list, "
        f"give up each program that takes more; default: {CPU_SECONDS_OF_EACH}",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="compile the whole list, and write docs/accelerators.md and docs/scaling.md",
    )
    parser.add_argument(
        "--groups",
        type=lambda text: text.split(","),
        default=GROUPS,
        metavar="GROUP,...",
        help=f"with --list: which parts of it; default: {','.join(GROUPS)}",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("runs/compiled"),
        metavar="DIR",
        help="with --list: where records are kept until sources change, so that it can be "
        "interrupted; default: runs/compiled",
    )
    parser.add_argument(
        "--fetch", action="store_true", help="fetch the compilers that are missing, and no more"
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Fetches, compiles the list, or compiles what was asked for."""
    if args.fetch:
        compilers.fetch()
        print(f"The compilers are in {compilers.folder()}.")
    elif args.list:
        run_list(args)
    elif args.target is None or (args.config is None) == (args.routing is None):
        raise _cli.UsageError(
            "--target and either --config or --routing must be given (or --list, or --fetch)"
        )
    else:
        _check(args)
        if args.cpu_seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (args.cpu_seconds, args.cpu_seconds))
        run(args)


def _check(args: argparse.Namespace) -> None:
    """Refuses options that would be without effect, before anything is compiled."""
    if args.output and args.output.is_dir():
        raise _cli.UsageError(f"--output: {args.output} is a directory: name a file in it")
    of_runs = {
        "--evaluate": args.evaluate,
        "--largest-batch": args.largest_batch,
        "--program": args.program is not None,
        "--chips": args.chips is not None,
    }
    if args.routing and (run_options := [name for name, is_given in of_runs.items() if is_given]):
        raise _cli.UsageError(f"{run_options[0]} goes with --config, not with --routing")
    if args.gradient and not args.routing:
        raise _cli.UsageError("--gradient goes with --routing; a run's training has its gradient")


def run(args: argparse.Namespace) -> None:
    """Compiles, prints, writes."""
    import jax
    from _compile import report, targets
    from _compile.crosscompile import DoesNotFit, compile_for, compile_lowered
    from _compile.largest import largest_batch
    from _compile.programs import batch_sizes, programs
    from _compile.routing import procedure
    from _provenance import commit

    terminal = _cli.table_console()
    config = None if args.config is None else _cli.config_of(args)
    with _cli.of_arguments():
        target = targets.find(args.target)
    devices = targets.devices(target)
    if args.chips is not None and not 1 <= args.chips <= len(devices):
        raise _cli.UsageError(
            f"--chips must be from 1 to {len(devices)}, the devices of {args.target}, got "
            f"{args.chips}"
        )
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
    # By name: what compiles a program, and the images that all devices do together in it.
    compilations: dict[str, tuple[Callable[[], Compiled], int]] = {}
    if config is None:
        function, shapes, images = procedure(args.routing, gradient=args.gradient)
        program = "forward+backward" if args.gradient else "forward"
        compilations[program] = partial(compile_for, target, function, *shapes), images
        terminal.print(f"{args.routing} routing for {devices[0].device_kind}")
    else:
        size = result["batch_size"] = config.training.batch_size
        result |= {"model": config.model.name, "data": config.data.name}
        evaluate = args.evaluate or args.program == "evaluation"
        images_of = batch_sizes(config, devices)
        for program, lower in programs(config, devices, evaluate=evaluate).items():
            if args.program in (None, program):
                compilations[program] = partial(compile_lowered, target, lower), images_of[program]
        terminal.print(
            f"{config.model.name} on {config.data.name}, batch {size}, for {len(devices)} × "
            f"{devices[0].device_kind} ({result['hosts']} hosts)"
        )
    if not compilations:
        raise ValueError(f"there is no {args.program} program: nothing is held out to validate on")
    too_large = []
    for program, (compile_program, images) in compilations.items():
        terminal.print(f"{program}: compiling …")
        try:
            record = report.to_json(compile_program(), images=images)
            report.show(terminal, program, record)
        except DoesNotFit as error:
            record = {"does_not_fit": str(error)}
            too_large.append(f"{program}: {error}")
        result["programs"][program] = record
        _write(args, result)
    if args.largest_batch and config is not None:
        result["largest_batch"] = largest_batch(config, target, devices, terminal)
        terminal.print(f"The largest batch that fits: {result['largest_batch']:,}")
        _write(args, result)
    if too_large:
        raise ValueError("; ".join(too_large))


def run_list(args: argparse.Namespace) -> None:
    """Compiles the list, or what is left of it, and writes what it is shown in."""
    from _compile import pages

    from capsjax._names import nearest

    for platform in ("tpu", "gpu"):
        compilers.check(platform)
    known = {entry.group for entry in catalogue.entries()}
    for group in args.groups:
        if group not in known:
            raise ValueError(f"--groups: unknown group {group!r}: {nearest(group, known)}")
    chosen = [entry for entry in catalogue.entries() if entry.group in args.groups]
    records = []
    done = catalogue.compile_all(
        chosen, args.results, cpu_seconds=args.cpu_seconds or CPU_SECONDS_OF_EACH
    )
    for number, (entry, record) in enumerate(done, start=1):
        records.append(record)
        print(f"{number}/{len(chosen)} {entry.key}: {pages.in_short(record)}", flush=True)
    pages.write(records)


def _write(args: argparse.Namespace, result: dict[str, Any]) -> None:
    if args.output:
        _cli.save(args.output, json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    compilers.enable()
    _cli.run(parser(), main)
