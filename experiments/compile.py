"""Compiles a run's programs for TPUs or GPUs, on any machine, and says what came out.

  python experiments/compile.py --fetch     # once: the compilers, 1.3 GB
  python experiments/compile.py --config=configs/sabour2017_mnist.py --target=v5e:2x4
  python experiments/compile.py --config=configs/tsai2020_cifar.py --target=v5e:16x16 \\
      --config.training.batch_size=4096 --evaluate --output=compiled.json

XLA's own compilers make the real programs (training exactly as experiments/train.py drives it,
validation, evaluation); no device is needed. Targets are slices of TPUs (v5e:2x2 … v5e:16x16,
v5p:4x4x4, v6e:2x4, TPU7x:2x2x1), GPUs (a100, h100, h200; h100:8 for eight of them), and cpu.
Memory, operations, collectives and the time to compile are facts. Cycles are the compiler's
estimate, and what is made of them (milliseconds, images per second) are estimates too.
"""

import json
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _cli
from _compile import compilers
from absl import app, flags, logging
from ml_collections import config_flags

if TYPE_CHECKING:
    from _compile.crosscompile import Compiled

CPU_SECONDS_OF_EACH = 300

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "A file of configs/; --config.SECTION.KEY=VALUE changes one of its values."
)
TARGET = flags.DEFINE_string("target", None, "What to compile for, such as v5e:2x4 or h100.")
EVALUATE = flags.DEFINE_bool(
    "evaluate", False, "Also the program of experiments/evaluate.py, 128 images on each device."
)
LARGEST_BATCH = flags.DEFINE_bool(
    "largest_batch",
    False,
    "Also find the largest batch whose training fits, to a sixteenth, compiling again and again.",
)
flags.DEFINE_alias("largest-batch", "largest_batch")
OUTPUT = flags.DEFINE_string("output", None, "Write everything to this JSON file.")
PROGRAM = flags.DEFINE_enum(
    "program", None, ["training", "validation", "evaluation"], "Only this one of a run's programs."
)
CHIPS = flags.DEFINE_integer("chips", None, "Only so many of the target's devices, the first ones.")
ROUTING = flags.DEFINE_enum(
    "routing",
    None,
    ["uniform", "dynamic", "em", "inverted_attention", "attention", "dynamic_large"],
    "Not a run but a procedure at its size in experiments/benchmark.py routing, on one device.",
)
GRADIENT = flags.DEFINE_bool("gradient", False, "With --routing: forward and backward.")
LIST = flags.DEFINE_bool(
    "list", False, "Compile the whole list, and write docs/accelerators.md and docs/scaling.md."
)
GROUPS = flags.DEFINE_list(
    "groups", ["routing", "networks", "scaling"], "With --list: which parts of it."
)
RESULTS = flags.DEFINE_string(
    "results",
    "runs/compiled",
    "With --list: where records are kept until sources change, so that it can be interrupted.",
)
CPU_SECONDS = flags.DEFINE_integer(
    "cpu_seconds",
    None,
    "End when compiling takes more CPU time; with --list, of each program, 300 by default.",
)
FETCH = flags.DEFINE_bool("fetch", False, "Fetch the compilers that are missing, and nothing else.")


def main(argv: list[str]) -> None:
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.ERROR)
    try:
        if FETCH.value:
            compilers.fetch()
            print(f"The compilers are in {compilers.folder()}.")
        elif LIST.value:
            run_list()
        elif TARGET.value is None or (CONFIG.value is None) == (ROUTING.value is None):
            raise ValueError(
                "--target and either --config or --routing must be given (or --list, or --fetch)"
            )
        else:
            if CPU_SECONDS.value:
                resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS.value, CPU_SECONDS.value))
            run(CONFIG.value, TARGET.value)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


def run(config: Any, name: str) -> None:
    """Compiles, prints, writes.

    Raises:
      ValueError: a program does not fit; the others are compiled all the same.
    """
    from _benchmark.measure import provenance
    from _compile import report, targets
    from _compile.crosscompile import DoesNotFit, compile_for, compile_lowered
    from _compile.largest import largest_batch
    from _compile.programs import batch_sizes, programs
    from _compile.routing import procedure

    terminal = _cli.table_console()
    target = targets.find(name)
    devices = targets.devices(target)[: CHIPS.value]
    about = provenance()
    result: dict[str, Any] = {
        "target": name,
        "devices": len(devices),
        "hosts": len({device.process_index for device in devices}),
        "commit": about["commit"],
        "jax": about["jax"],
        "compiler": compilers.version(target.platform),
        "programs": {},
    }
    # By name: what compiles a program, and the images that all devices do together in it.
    found: dict[str, tuple[Callable[[], Compiled], int]] = {}
    if config is None:
        function, shapes, images = procedure(ROUTING.value, gradient=GRADIENT.value)
        program = "forward+backward" if GRADIENT.value else "forward"
        found[program] = partial(compile_for, target, function, *shapes), images
        terminal.print(f"{ROUTING.value} routing for {devices[0].device_kind}")
    else:
        size = result["batch_size"] = config.training.batch_size
        result |= {"model": config.model.name, "data": config.data.name}
        evaluate = EVALUATE.value or PROGRAM.value == "evaluation"
        images_of = batch_sizes(config, devices)
        for program, lower in programs(config, devices, evaluate=evaluate).items():
            if PROGRAM.value in (None, program):
                found[program] = partial(compile_lowered, target, lower), images_of[program]
        terminal.print(
            f"{config.model.name} on {config.data.name}, batch {size}, for {len(devices)} × "
            f"{devices[0].device_kind} ({result['hosts']} hosts)"
        )
    if not found:
        raise ValueError(f"there is no {PROGRAM.value} program: nothing is held out to validate on")
    too_large = []
    for program, (compile_program, images) in found.items():
        terminal.print(f"{program}: compiling …")
        try:
            record = report.to_json(compile_program(), images=images)
            report.show(terminal, program, record)
        except DoesNotFit as error:
            record = {"does_not_fit": str(error)}
            too_large.append(f"{program}: {error}")
        result["programs"][program] = record
        _write(result)
    if LARGEST_BATCH.value and config is not None:
        result["largest_batch"] = largest_batch(config, target, devices, terminal)
        terminal.print(f"The largest batch that fits: {result['largest_batch']:,}")
        _write(result)
    if too_large:
        raise ValueError("; ".join(too_large))


def run_list() -> None:
    """Compiles the list, or what is left of it, and writes what it is shown in."""
    from _compile import catalogue, pages

    from capsjax._names import nearest

    for platform in ("tpu", "gpu"):
        compilers.check(platform)
    known = {entry.group for entry in catalogue.entries()}
    for group in GROUPS.value:
        if group not in known:
            raise ValueError(f"--groups: unknown group {group!r}: {nearest(group, known)}")
    chosen = [entry for entry in catalogue.entries() if entry.group in GROUPS.value]
    records = []
    done = catalogue.compile_all(
        chosen, Path(RESULTS.value), cpu_seconds=CPU_SECONDS.value or CPU_SECONDS_OF_EACH
    )
    for number, (entry, record) in enumerate(done, start=1):
        records.append(record)
        print(f"{number}/{len(chosen)} {entry.key}: {pages.in_short(record)}", flush=True)
    pages.write(records)


def _write(result: dict[str, Any]) -> None:
    if OUTPUT.value:
        Path(OUTPUT.value).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    compilers.enable()
    app.run(main, flags_parser=_cli.parse_flags)
