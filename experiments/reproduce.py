"""Computes a paper's table or figure and puts our numbers beside the published ones.

  python experiments/reproduce.py --list
  python experiments/reproduce.py gu2021/table2 --scale=small
  python experiments/reproduce.py gu2021/table2 --scale=small --seeds=5 --only "no squash"
  python experiments/reproduce.py all --scale=smoke

Started again it repeats nothing that is finished and resumes what was interrupted. Started several
times at once, each process takes runs that no other is at. Results lie in WORKDIR/SCALE: a JSON
file for each run in results/, the tables and figures in tables/.
`experiments/report.py --results=WORKDIR` makes pages of all, with an index.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import _cli
from _reproduce.experiment import SCALES

if TYPE_CHECKING:
    from _reproduce.runs import Store

# Columns that all of --list takes, and how many of its heads a narrower terminal gets.
WIDE, NARROW = 120, 3


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of --list, or all")
    parser.add_argument(
        "--list",
        action="store_true",
        help="all names, their data, and what the papers' claims came to in --workdir; with NAME "
        "its claims, one by one",
    )
    parser.add_argument(
        "--costs",
        action="store_true",
        help="estimate anew what full scale would take on accelerators, from the records of "
        "experiments/compile.py, into experiments/_reproduce/costs.json; minutes",
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        default="small",
        help="full: the paper's recipe; medium: networks that learn, hours on two CPU cores; small "
        "(default): the beginning of training; smoke: seconds",
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="runs of each row; default: the scale's"
    )
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows of the table alone")
    parser.add_argument(
        "--workdir",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="DIR",
        help="runs, results and tables go into a folder of it for each scale; default: "
        "runs/reproduce",
    )
    parser.add_argument(
        "--use",
        nargs="+",
        default=[],
        metavar="NAME=OTHER",
        help="data set OTHER stands in for NAME, such as cifar10=npz:mine.npz",
    )
    _cli.add(parser, "--data_dir")
    return parser


def main(args: argparse.Namespace) -> None:
    """Lists, or runs and writes."""
    import jax
    from _reproduce import results, tables
    from _reproduce.runs import Store, run_all
    from papers import EXPERIMENTS

    from capsjax import data
    from capsjax._names import check_options, lookup
    from capsjax.runs import process
    from capsjax.runs.process import cache_programs

    if args.seeds is not None and args.seeds < 1:
        raise _cli.UsageError(f"--seeds must be at least 1, got {args.seeds}")
    names = list(EXPERIMENTS) if args.name in ("all", None) else [args.name]
    stand_ins = dict(pair.partition("=")[::2] for pair in args.use)
    if not all(stand_ins.values()):
        raise _cli.UsageError(f"--use takes NAME=OTHER, got {' '.join(args.use)}")
    with _cli.of_arguments():
        rows = {name: lookup("name", name, EXPERIMENTS).at(args.scale) for name in names}
        if not any(rows.values()) and not args.list:
            known = ", ".join(EXPERIMENTS[args.name].scales)
            raise _cli.UsageError(f"{args.name} has no scale {args.scale}: use one of {known}")
        chosen = {
            name: [
                lookup(f"row of {name} at scale {args.scale}", row, known)
                for row in args.only or known
            ]
            for name, known in rows.items()
            if known
        }
        check_options("--use", stand_ins, data.names())
    if args.costs:
        _costs()
        return
    store = Store(args.workdir / args.scale, args.scale, stand_ins, args.data_dir).with_earlier()
    if args.list:
        _list(store) if len(names) > 1 else _list_claims(store, args.name)
        return
    if args.name is None:
        raise _cli.UsageError("name what to reproduce, or all; --list shows the names")
    store.remember()
    if args.scale == "smoke":  # compiling takes longer than all else there
        jax.config.update("jax_disable_most_optimizations", True)
    # Runs that differ in their seed alone share their programs.
    cache_programs(store.folder / "compiled")
    lacking = []
    try:
        for name, chosen_rows in chosen.items():
            lacking += run_all(store, name, EXPERIMENTS[name], chosen_rows, args.seeds)
            comparison = results.gather(store, name, EXPERIMENTS[name])
            if comparison.was_run or comparison.left:
                files = results.write([comparison], store.folder / "tables")
                print(f"\n{tables.markdown(name, tables.blocks([comparison]))}")
                print(f"Written to {', '.join(map(str, files))}.")
    except process.Interrupted as stop:
        print(f"{stop}. The same command resumes it.")
        sys.exit(128 + stop.signum)
    if lacking:
        raise ValueError("not run, since files are missing:\n  " + "\n  ".join(lacking))


def _list(store: "Store") -> None:
    """Returns a table of all names."""
    from _reproduce import costs, results, tables
    from _reproduce.recipes import source_of, trainings
    from papers import EXPERIMENTS
    from rich.table import Table

    terminal = _cli.table_console()
    heads = ("name", "data", "claims", "what", "runs", "full, h", "tested")
    shown = len(heads) if terminal.width >= WIDE else NARROW
    table = Table(*heads[:shown])
    hours, left = costs.read(), results.of_no_name(store, EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        rows = experiment.at(store.scale)
        if not rows:
            continue
        configs = [
            trainings(experiment, row, store.scale, 0, store.use)[-1] for row in rows.values()
        ]
        comparison = results.gather(store, name, experiment)
        cells = (
            name,
            ", ".join(sorted({source_of(config) for config in configs})),
            tables.summary([comparison]),
            experiment.title,
            str(len(rows) * experiment.scales[store.scale].seeds),
            str(hours.get(name, "–")),
            f"{len(experiment.claims)} of {len(experiment.claims) + len(experiment.untested)}",
        )
        table.add_row(*cells[:shown])
        left += [f"{name}: {line}" for line in comparison.left]
    terminal.print(_cli.whole_names(table))
    print(f"Claims: by the results in {store.folder}; docs/results/index.md has those shown there.")
    if shown == NARROW:
        print(f"A terminal of {WIDE} columns, or a file, gets more: {', '.join(heads[NARROW:])}.")
    print("Full scale: estimated hours on one TPU v5e chip / eight / one H100 at least (--costs).")
    print("Tested: by a rule, of those published; --list NAME says why others are not.")
    if left:
        print("Kept apart:\n  " + "\n  ".join(left))


def _costs() -> None:
    """Estimates the hours of full scale anew."""
    from _reproduce import costs
    from papers import EXPERIMENTS
    from rich.table import Table

    table = Table("name", "images shown", costs.FULL)
    for name, cost in costs.write(EXPERIMENTS).items():
        table.add_row(name, f"{cost.images:,}", str(cost))
    _cli.table_console().print(_cli.whole_names(table))
    print(f"Written to {costs.COSTS}.")


def _list_claims(store: "Store", name: str) -> None:
    """Returns the claims of one name: their verdicts, or why there is none."""
    from _reproduce import results, tables
    from papers import EXPERIMENTS

    shown = results.gather(store, name, EXPERIMENTS[name])
    print(tables.markdown(f"{name}: {shown.experiment.title}", tables.claims(shown)))


if __name__ == "__main__":
    _cli.run(parser(), main)
