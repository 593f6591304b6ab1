"""Computes a paper's table or figure and puts our numbers beside the published ones.

  python experiments/reproduce.py --list
  python experiments/reproduce.py gu2021/table2 --scale=small
  python experiments/reproduce.py gu2021/table2 --scale=small --seeds=5 --only "no squash"
  python experiments/reproduce.py all --scale=smoke

Started again, it skips what is finished and resumes what was interrupted. Several processes can
work at once: each takes runs that no other is working on. Results are in WORKDIR/SCALE: a JSON file
for each run in results/, the tables and figures in tables/.
`experiments/report.py --results=WORKDIR` makes pages of everything, with an index.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import _cli
from _reproduce.experiment import SCALES, Experiment
from rich.table import Table

from capsjax import runs
from capsjax._names import check_options, lookup

if TYPE_CHECKING:
    from _reproduce.runs import Store


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    option = parser.add_argument
    option("name", nargs="?", metavar="NAME", help="one of --list, or all")
    text = "list all names, with verdicts from --workdir; with NAME, list its claims one by one"
    option("--list", action="store_true", help=text)
    text = "full: the paper's recipe; medium: networks that learn; small: the beginning of training"
    option("--scale", choices=SCALES, default="small", help=text)
    option("--seeds", type=int, metavar="N", help="runs of each row; default: the scale's")
    option("--only", action="extend", nargs="+", metavar="ROW", help="run only these rows")
    text = "runs, results and tables go into DIR/SCALE"
    where = Path("runs/reproduce")
    option("--workdir", type=_cli.local_folder, default=where, metavar="DIR", help=text)
    text = "data set OTHER stands in for NAME, such as cifar10=npz:mine.npz"
    option("--use", action="extend", nargs="+", default=[], metavar="NAME=OTHER", help=text)
    _cli.add(parser, "--data_dir")
    return parser


def main(args: argparse.Namespace) -> None:
    """Lists, or runs and writes."""
    from _reproduce import results
    from _reproduce.runs import Store
    from papers import EXPERIMENTS

    every, name = args.name in ("all", None), args.name
    chosen = EXPERIMENTS if every else {name: lookup("name", name, EXPERIMENTS)}
    store = Store(args.workdir / args.scale, args.scale, _stand_ins(args.use), args.data_dir)
    store = store.with_earlier()
    if args.list and every:
        _list(store, chosen)
    elif args.list:
        claims = results.claims(results.gather(store, name, chosen[name]))
        print(results.markdown(f"{name}: {chosen[name].title}", claims))
    elif name is None:
        raise ValueError("name what to reproduce, or all; --list shows the names")
    else:
        run(store, chosen, args)


def _stand_ins(texts: list[str]) -> dict[str, str]:
    import capsjax.data

    stand_ins = dict(text.partition("=")[::2] for text in texts)
    if not all(stand_ins.values()):
        raise ValueError(f"--use takes NAME=OTHER, got {' '.join(texts)}")
    check_options("--use", stand_ins, capsjax.data.names())
    return stand_ins


def run(store: "Store", chosen: Mapping[str, Experiment], args: argparse.Namespace) -> None:
    """Runs the rows asked for, and writes each name's table when it is done."""
    import jax
    from _reproduce import results
    from _reproduce.runs import run_all

    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    rows = {}
    for name, experiment in chosen.items():
        if known := experiment.at(store.scale):
            kind = f"row of {name} at scale {store.scale}"
            rows[name] = [lookup(kind, row, known) for row in args.only or known]
    if not rows:
        (experiment,) = chosen.values()
        known = ", ".join(experiment.scales)
        raise ValueError(f"{args.name} has no scale {store.scale}: use one of {known}")
    store.remember()
    if store.scale == "smoke":  # compiling takes longer than all else there
        jax.config.update("jax_disable_most_optimizations", True)
    # Runs that differ in their seed alone share their programs.
    runs.process.cache_programs(store.folder / "compiled")
    lacking = []
    try:
        for name, rows_of_name in rows.items():
            lacking += run_all(store, name, chosen[name], rows_of_name, args.seeds)
            comparison = results.gather(store, name, chosen[name])
            if comparison.was_run or comparison.left:
                files = results.write([comparison], store.folder / "tables")
                print(f"\n{results.markdown(name, results.blocks([comparison]))}")
                print(f"Written to {', '.join(map(str, files))}.")
    except runs.process.Interrupted as stop:
        print(f"{stop}. The same command resumes it.")
        sys.exit(128 + stop.signum)
    if lacking:
        raise ValueError("not run, since files are missing:\n  " + "\n  ".join(lacking))


def _list(store: "Store", experiments: Mapping[str, Experiment]) -> None:
    """Prints a table of all names."""
    from _reproduce import results
    from _reproduce.runs import trainings

    table = Table("name", "data", "claims", "what", "runs", "with a rule")
    left = list[str]()
    for name, experiment in experiments.items():
        rows = experiment.at(store.scale).values()
        if not rows:
            table.add_row(name, "", "", experiment.title, f"no scale {store.scale}")
            continue
        configs = [trainings(experiment, row, store.scale, 0, store.use)[-1] for row in rows]
        comparison = results.gather(store, name, experiment)
        table.add_row(
            name,
            ", ".join(sorted({c.data.get("source", c.data.name) for c in configs})),
            results.summary([comparison]),
            experiment.title,
            str(len(rows) * experiment.seeds(store.scale)),
            f"{len(experiment.claims)} of {len(experiment.claims) + len(experiment.untested)}",
        )
        left += [f"{name}: {line}" for line in comparison.left]
    _cli.table_console().print(_cli.whole_names(table))
    print(f"Claims: verdicts from {store.folder}; ours are in docs/results/index.md.")
    print("With a rule: claims that a test can decide; --list NAME says why others have none.")
    if left:
        print("Kept apart:\n  " + "\n  ".join(left))


if __name__ == "__main__":
    _cli.run(parser(), main)
