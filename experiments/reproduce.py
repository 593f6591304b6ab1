"""Computes a paper's table or figure and puts our numbers beside the published ones.

  python experiments/reproduce.py --list
  python experiments/reproduce.py gu2021/table2 --scale=small
  python experiments/reproduce.py gu2021/table2 --scale=small --seeds=5 --only "no squash"
  python experiments/reproduce.py all --scale=smoke

Started again it repeats nothing that is finished and resumes what was interrupted. Started several
times at once, each process takes runs that no other is at. Results lie in WORKDIR/SCALE: a JSON
file for each run in results/, the tables and figures in tables/.
`experiments/report.py --results=WORKDIR` makes one page of all.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import _cli
from _reproduce.experiment import SCALES

if TYPE_CHECKING:
    from _reproduce.runs import Where

POLL_SECONDS = 5.0  # where all that is left is with other processes


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of --list, or all")
    parser.add_argument(
        "--list",
        action="store_true",
        help="all names, their data, and what the papers' claims came to in --workdir; with NAME "
        "its claims, one by one",
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="small",
        help="full: the paper's recipe; small (default): for two CPU cores; smoke: seconds",
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="runs of each variant; default: the scale's"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="VARIANT", help="these rows of the table alone"
    )
    parser.add_argument("--workdir", type=Path, default=Path("runs/reproduce"), metavar="DIR")
    parser.add_argument(
        "--use",
        nargs="+",
        default=[],
        metavar="NAME=OTHER",
        help="data set OTHER stands in for NAME, such as cifar10=npz:mine.npz",
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="prepared TFDS directory; default: those in CAPSJAX_DATA_DIR, then TFDS's",
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Lists, or runs and writes."""
    import jax
    from _reproduce import registry
    from _reproduce.runs import Where

    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    if args.name == "all" and args.only:
        raise ValueError("--only goes with one name, not with all")
    names = list(registry.EXPERIMENTS) if args.name in ("all", None) else [args.name]
    where = Where(args.workdir / args.scale, args.scale, _stand_ins(args.use), args.data_dir)
    where = where.with_earlier()
    if args.list:
        _list(where) if args.name is None else _list_claims(where, args.name)
        return
    if args.name is None:
        raise ValueError("name what to reproduce, or all; --list shows the names")
    chosen = {name: _variants(name, args) for name in names}
    where.remember()
    if where.scale == "smoke":  # compiling takes longer than all else there
        jax.config.update("jax_disable_most_optimizations", True)
    # Runs that differ in their seed alone share their programs.
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(where.folder / "compiled"))
    lacking = [
        line for name, rows in chosen.items() for line in _run(where, name, rows, args.seeds)
    ]
    if lacking:
        raise ValueError("not run, since files are missing:\n  " + "\n  ".join(lacking))


def _run(where: "Where", name: str, variants: Sequence[str], seeds: int | None) -> list[str]:
    """Runs what is not there yet, then writes and prints the table.

    Returns:
      A line for each variant that was not run since its data are missing.
    """
    import jax
    from _reproduce import registry, results, tables
    from _reproduce.runs import run

    from capsjax.training import process
    from capsjax.training.display import console

    experiment = registry.lookup(name)
    terminal = console()
    count = seeds or experiment.scales[where.scale].seeds
    # Every variant once, then once more: what is there after an interruption can be compared.
    todo = [(variant, number) for number in range(count) for variant in variants]
    lacking: dict[str, str] = {}
    while todo:
        busy = []  # other processes are at these
        for variant, number in todo:
            try:
                record = run(where, name, experiment, variant, number)
            except FileNotFoundError as error:
                lacking[variant] = f"{name}, {variant}: {error}"
                continue
            except process.Interrupted as stop:
                print(f"{stop}. The same command resumes it.")
                sys.exit(128 + stop.signum)
            if record is None:
                busy.append((variant, number))
                continue
            # Compiled programs of networks that are done with: hundreds exhaust what the system
            # lets one process map (vm.max_map_count), and LLVM ends it.
            jax.clear_caches()
            shown = {k: round(v, 4) for k, v in record["metrics"].items()}
            terminal.print(record["failed"] or f"{shown}", markup=False)
        if busy == todo:
            time.sleep(POLL_SECONDS)
        todo = busy
    comparison = results.gather(where, name, experiment)
    if comparison.has_page:
        files = results.write(comparison, where.folder / "tables")
        terminal.print("\n" + tables.markdown(name, tables.blocks(comparison)), markup=False)
        terminal.print(f"Written to {', '.join(map(str, files))}.", markup=False)
    return list(lacking.values())


def _variants(name: str, args: argparse.Namespace) -> list[str]:
    """The rows asked for; ValueError for an unknown one (the nearest is named)."""
    from _reproduce import registry

    from capsjax._names import nearest

    experiment = registry.lookup(name)
    known = experiment.at(args.scale)
    for variant in args.only or ():
        if variant not in known:
            other = ", not at this scale" if variant in experiment.variants else ""
            raise ValueError(f"unknown variant {variant!r}{other}: {nearest(variant, known)}")
    return [variant for variant in known if not args.only or variant in args.only]


def _list(where: "Where") -> None:
    """A table of all names."""
    from _reproduce import compare, registry, results
    from _reproduce.recipes import run_config, source_of
    from rich.table import Table

    runs = [f"{scale}: runs" for scale in SCALES]
    table = Table("name", "what", "data", *runs, "claims", "tested", *compare.VERDICTS)
    left = []
    for name, experiment in registry.EXPERIMENTS.items():
        configs = [run_config(experiment, v, "full", 0, where.use) for v in experiment.variants]
        comparison = results.gather(where, name, experiment)
        verdicts = Counter(verdict.verdict for verdict in comparison.verdicts)
        tested = len(experiment.claims)
        numbers = [len(experiment.at(s)) * experiment.scales[s].seeds for s in SCALES]
        numbers += [tested + len(experiment.untested), tested]
        numbers += [verdicts[verdict] for verdict in compare.VERDICTS]
        sources = ", ".join(sorted({source_of(config) for config in configs}))
        table.add_row(name, experiment.title, sources, *map(str, numbers))
        left += [f"{name}: {line}" for line in comparison.left]
    _cli.table_console().print(_cli.whole_names(table))
    print(
        f"Verdicts: of what lies in {where.folder}; docs/results/index.md has those of the pages."
    )
    print("Claims: published, and tested by a rule; --list NAME says why others are not.")
    print("Data are those of small and full; smoke needs nothing that is not installed.")
    if left:
        print("Kept apart:\n  " + "\n  ".join(left))


def _list_claims(where: "Where", name: str) -> None:
    """All claims of one name: their verdicts, or why there is none."""
    from _reproduce import registry, results, tables

    comparison = results.gather(where, name, registry.lookup(name))
    print(tables.markdown(f"{name}: {comparison.experiment.title}", tables.claims(comparison)))


def _stand_ins(pairs: Sequence[str]) -> dict[str, str]:
    """What --use says."""
    from capsjax import data
    from capsjax._names import nearest

    found = {}
    for pair in pairs:
        name, _, found[name] = pair.partition("=")
        if name not in data.names() or not found[name]:
            raise ValueError(f"--use takes NAME=OTHER, got {pair!r}: {nearest(name, data.names())}")
    return found


if __name__ == "__main__":
    _cli.run(parser(), main)
