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
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import _cli
from _reproduce.experiment import SCALES

if TYPE_CHECKING:
    from _reproduce.experiment import Experiment
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
        help="all names, what they need, and what the papers' claims came to in --workdir; with "
        "NAME its claims, one by one",
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
    parser.add_argument(
        "--workdir",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="DIR",
        help="default: runs/reproduce",
    )
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
    from _reproduce.runs import Where, checked, claim

    use = dict(_stand_in(pair) for pair in args.use)
    where = Where(args.workdir / args.scale, args.scale, use, args.data_dir, _commit())
    if args.list:
        if args.name is None:
            _list(checked(where))
        else:
            _list_claims(checked(where), args.name)
        return
    if args.name is None:
        raise ValueError("name what to reproduce, or all; --list shows the names")
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    if args.name == "all" and args.only:
        raise ValueError("--only goes with one name, not with all")
    names = registry.EXPERIMENTS if args.name == "all" else [args.name]
    experiments = {name: registry.lookup(name) for name in names}
    chosen = {name: _variants(e, args.scale, args.only) for name, e in experiments.items()}
    where = checked(where)
    left_out = _leave_out(where, experiments, chosen, use)
    if left_out and args.name != "all":
        raise ValueError(
            "data are missing, nothing was started:\n  "
            + "\n  ".join(left_out)
            + "\n--use lets another set stand in, --only leaves rows out"
        )
    where = claim(where)
    # Compiling takes longer than all else there.
    jax.config.update("jax_disable_most_optimizations", where.scale == "smoke")
    # Runs that differ in their seed alone share their programs.
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(where.folder / "compiled"))
    for name, variants in chosen.items():
        if variants:
            _run(where, name, experiments[name], variants, args.seeds)
    if left_out:
        raise ValueError("all others were run; not run:\n  " + "\n  ".join(left_out))


def _run(
    where: "Where",
    name: str,
    experiment: "Experiment",
    variants: Sequence[str],
    seeds: int | None,
) -> None:
    """Runs what is not there yet, then writes and prints the table."""
    import jax
    from _reproduce import results, tables
    from _reproduce.runs import run

    from capsjax.training import process
    from capsjax.training.display import console

    terminal = console()
    count = experiment.scales[where.scale].seeds if seeds is None else seeds
    # Every variant once, then once more: what is there after an interruption can be compared.
    todo = [(variant, number) for number in range(count) for variant in variants]
    others: list[tuple[str, int]] = []  # that other processes are at
    while todo:
        before, others = others, []
        for variant, number in todo:
            if (variant, number) not in before:
                terminal.print(f"\n{name}: {variant}, run {number}", markup=False)
            try:
                record = run(where, name, experiment, variant, number)
            except process.Interrupted as stop:
                print(f"{stop}. The same command resumes it.")
                sys.exit(128 + stop.signum)
            if record is None:
                if (variant, number) not in before:
                    terminal.print("another process is at it", markup=False)
                others.append((variant, number))
                continue
            # Compiled programs of networks that are done with: hundreds exhaust what the system
            # lets one process map (vm.max_map_count), and LLVM ends it.
            jax.clear_caches()
            shown = {k: round(v, 4) for k, v in record["metrics"].items()}
            terminal.print(record["failed"] or f"{shown}", markup=False)
        if others == todo:
            time.sleep(POLL_SECONDS)
        todo = others
    comparison = results.gather(where, name, experiment)
    files = results.write(comparison, where.folder / "tables")
    terminal.print("\n" + tables.markdown(comparison), markup=False)
    terminal.print(f"Written to {', '.join(map(str, files))}.", markup=False)


def _variants(experiment: "Experiment", scale: str, only: Sequence[str] | None) -> list[str]:
    """Returns what was asked for; an unknown name is a ValueError that gives the nearest."""
    from capsjax._names import nearest

    known = experiment.at(scale)
    for variant in only or ():
        if variant not in known:
            other = ", not at this scale" if variant in experiment.variants else ""
            raise ValueError(f"unknown variant {variant!r}{other}: {nearest(variant, known)}")
    return [variant for variant in known if not only or variant in only]


def _leave_out(
    where: "Where",
    experiments: "dict[str, Experiment]",
    chosen: dict[str, list[str]],
    use: dict[str, str],
) -> list[str]:
    """Takes the rows out of `chosen` whose data are missing; returns a line for each data set.

    Raises:
      ValueError: a stand-in for something that nothing reads (the nearest is named).
    """
    from _reproduce.recipes import source_of, trainings

    from capsjax._names import nearest
    from capsjax.data import load

    rows = [(name, variant) for name, variants in chosen.items() for variant in variants]
    named, users = set(), {}
    for name, variant in rows:
        for config in trainings(experiments[name], variant, where.scale, 0, {}):
            named |= {config.data.name, source_of(config)}
        for config in trainings(experiments[name], variant, where.scale, 0, where.use):
            users.setdefault(source_of(config), {})[name, variant] = None
    for name in use:
        if name not in named:
            raise ValueError(
                f"--use: nothing that is asked for reads {name!r}: {nearest(name, named)}"
            )
    lines = []
    for source, of_source in users.items():
        if _found(source, where.data_dir):
            continue
        try:  # what TFDS can prepare it prepares
            load(source, "train", where.data_dir)
        except (ValueError, OSError) as error:
            listed = ", ".join(f"{name} ({variant})" for name, variant in of_source)
            lines.append(f"{source}, for {listed}: {error}")
            for name, variant in of_source:
                chosen[name] = [other for other in chosen[name] if other != variant]
    return lines


def _found(source: str, data_dir: str | None) -> bool:
    """Whether the data set `source` is prepared on this machine; not asked of files."""
    from capsjax.data import tfds

    if source == "digits":
        return True
    return ":" not in source and tfds.find(source, tfds.search_path(data_dir)) is not None


def _list(where: "Where") -> None:
    """A table of all names."""
    from _reproduce import registry, results
    from _reproduce.recipes import run_config, source_of
    from rich.table import Table

    verdicts = ("holds", "does not hold", "undecided", "not run")
    heads = ("name", "what", "data", *(f"{scale}: runs" for scale in SCALES))
    table = Table(*heads, "claims", "tested", *verdicts)
    notes = []
    for name, experiment in registry.EXPERIMENTS.items():
        sources = {
            source_of(run_config(experiment, variant, "full", 0, where.use))
            for variant in experiment.variants
        }
        data = [
            s if _found(s, where.data_dir) or ":" in s else f"{s} (missing)"
            for s in sorted(sources)
        ]
        runs = [str(len(experiment.at(s)) * experiment.scales[s].seeds) for s in SCALES]
        comparison = results.gather(where, name, experiment)
        # At smoke scale nothing is compared.
        counts = Counter(v.verdict for v in comparison.verdicts) or {
            "not run": len(experiment.claims)
        }
        tested = len(experiment.claims)
        claims = [tested + len(experiment.untested), tested, *(counts.get(v, 0) for v in verdicts)]
        cells = (", ".join(data), *runs, *map(str, claims))
        table.add_row(name, experiment.title, *cells)
        notes += [f"{name}: {line}" for line in comparison.left]
    _cli.table_console().print(_cli.whole_names(table))
    print(
        f"Verdicts: of what lies in {where.folder}; docs/results/index.md has those of the pages."
    )
    print("Claims: published, and tested by a rule; --list NAME says why others are not.")
    print("Data are those of small and full; smoke needs scikit-learn's digits alone.")
    if notes:
        print("Kept apart:\n  " + "\n  ".join(notes))


def _list_claims(where: "Where", name: str) -> None:
    """All claims of one name: their verdicts, or why there is none."""
    from _reproduce import registry, results, tables
    from rich.table import Table

    experiment = registry.lookup(name)
    comparison = results.gather(where, name, experiment)
    table = Table("claim", "verdict", "difference", title=f"{name}: {experiment.title}")
    if comparison.verdicts:
        for verdict in comparison.verdicts:
            table.add_row(verdict.claim.text, verdict.said, tables.margin(comparison, verdict))
    else:  # smoke compares nothing
        for claim in experiment.claims:
            table.add_row(claim.text, "not run", "–")
    for claim, reason in experiment.untested.items():
        table.add_row(claim, f"not tested: {reason}", "–")
    _cli.table_console().print(table)


def _stand_in(pair: str) -> tuple[str, str]:
    """One word of --use."""
    name, equals, other = pair.partition("=")
    if not (name and equals and other):
        raise ValueError(f"--use takes NAME=OTHER, got {pair!r}")
    return name, other


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    _cli.run(parser(), main)
