"""Computes a paper's table or figure and puts our numbers beside the published ones.

  python experiments/reproduce.py --list
  python experiments/reproduce.py gu2021/table2 --scale=small
  python experiments/reproduce.py gu2021/table2 --scale=small --seeds=5 --only "no squash"
  python experiments/reproduce.py all --scale=smoke

Started again it repeats nothing that is finished and goes on where it was interrupted. Started
several times at once, each process takes runs that no other is at. Results lie in WORKDIR/SCALE: a
JSON file for each run in results/, the tables and figures in tables/.
`experiments/report.py --results=WORKDIR` makes one page of all.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import _cli
from _reproduce.experiment import SCALES

if TYPE_CHECKING:
    from _reproduce.experiment import Experiment
    from _reproduce.runs import Where


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of --list, or all")
    parser.add_argument("--list", action="store_true", help="all names and what they need")
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
    parser.add_argument(
        "--skip_memory_check",
        action="store_true",
        help="at full scale: start without estimating the memory",
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Lists, or runs and writes."""
    from _reproduce import registry
    from _reproduce.runs import Where, check, claim

    use = _stand_ins(args.use)
    if args.list:
        _list(use, args.data_dir)
        return
    if args.name is None:
        raise ValueError("name what to reproduce, or all; --list shows the names")
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    if args.name == "all" and args.only:
        raise ValueError("--only goes with one name, not with all")
    names = list(registry.EXPERIMENTS) if args.name == "all" else [args.name]
    experiments = {name: registry.lookup(name) for name in names}
    where = Where(args.workdir / args.scale, args.scale, use, args.data_dir, _commit())
    chosen = {name: _variants(e, args.scale, args.only) for name, e in experiments.items()}
    _check_use(where, experiments, chosen)
    check(where, _data(where, experiments, chosen))
    left_out = _check_data(where, experiments, chosen, skip=args.name == "all")
    if args.scale == "full" and not args.skip_memory_check:
        _check_memory(where, experiments, chosen)
    claim(where, _data(where, experiments, chosen))
    _set_compiler(where)
    for name, experiment in experiments.items():
        _run(where, name, experiment, chosen[name], args.seeds)
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
    # First what no other process is at, then the rest: there by then, or left by a lost process.
    for wait in (False, True):
        others = []
        for place, (variant, number) in enumerate(todo, start=1):
            what = f"{name}: {variant}, run {number} ({place} of {len(todo)})"
            terminal.print(f"\n{what}", markup=False)
            if wait:
                terminal.print("waiting for the process that was at it", markup=False)
            try:
                record = run(where, name, experiment, variant, number, wait=wait)
            except process.Interrupted as stop:
                print(f"{stop}. The same command resumes from there.")
                sys.exit(128 + stop.signum)
            if record is None:
                terminal.print("another process is at it", markup=False)
                others.append((variant, number))
                continue
            # Compiled programs of networks that are done with: hundreds exhaust what the system
            # lets one process map (vm.max_map_count), and LLVM ends it.
            jax.clear_caches()
            shown = {k: round(v, 4) for k, v in record["metrics"].items()}
            terminal.print(record["failed"] or f"{shown}", markup=False)
        todo = others
    comparison = results.gather(where, name, experiment)
    files = results.write(comparison, where.folder / "tables")
    terminal.print("\n" + tables.markdown(comparison), markup=False)
    terminal.print(f"Written to {', '.join(map(str, files))}.", markup=False)


def _variants(experiment: "Experiment", scale: str, only: Sequence[str] | None) -> list[str]:
    """Those asked for; ValueError for an unknown one (the nearest is named)."""
    from capsjax._names import nearest

    known = experiment.at(scale)
    for variant in only or ():
        if variant not in known:
            other = ", not at this scale" if variant in experiment.variants else ""
            raise ValueError(f"unknown variant {variant!r}{other}: {nearest(variant, known)}")
    return [variant for variant in known if not only or variant in only]


def _check_use(
    where: "Where", experiments: "dict[str, Experiment]", chosen: dict[str, list[str]]
) -> None:
    """Raises ValueError for a name in --use that nothing reads (the nearest is named)."""
    from _reproduce.settings import source_of, trainings

    from capsjax._names import nearest

    known = {
        data
        for name, variants in chosen.items()
        for variant in variants
        for config in trainings(experiments[name], variant, where.scale, 0, {})
        for data in (config.data.name, source_of(config))
    }
    for name in where.use:
        if name not in known:
            raise ValueError(
                f"--use: nothing that is asked for reads {name!r}: {nearest(name, known)}"
            )


def _check_data(
    where: "Where",
    experiments: "dict[str, Experiment]",
    chosen: dict[str, list[str]],
    *,
    skip: bool,
) -> list[str]:
    """Raises ValueError where data are missing; with `skip` those runs are taken out of `chosen`.

    Returns:
      What was taken out, and why.
    """
    from _reproduce.needs import missing
    from _reproduce.settings import source_of, trainings

    needs: dict[str, dict[tuple[str, str], None]] = {}
    for name, variants in chosen.items():
        for variant in variants:
            for config in trainings(experiments[name], variant, where.scale, 0, where.use):
                needs.setdefault(source_of(config), {})[name, variant] = None
    lines = []
    for source, users in needs.items():
        problem = missing(source, where.data_dir)
        if problem is None:
            continue
        listed = ", ".join(f"{name} ({variant})" for name, variant in users)
        lines.append(f"{source}, for {listed}: {problem}")
        for name, variant in users:
            if variant in chosen[name]:
                chosen[name].remove(variant)
    if lines and not skip:
        raise ValueError(
            "data are missing, nothing was started:\n  "
            + "\n  ".join(lines)
            + "\n--use lets another set stand in, --only leaves rows out"
        )
    for name in [name for name, variants in chosen.items() if not variants]:
        del chosen[name], experiments[name]
    return lines


def _data(
    where: "Where", experiments: "dict[str, Experiment]", chosen: dict[str, list[str]]
) -> dict[str, str]:
    """By the data sets that the scale names, what they are read from."""
    from _reproduce.settings import source_of, trainings

    named = {
        source_of(config)
        for name, variants in chosen.items()
        for variant in variants
        for config in trainings(experiments[name], variant, where.scale, 0, {})
    }
    return {source: where.use.get(source, source) for source in named}


def _check_memory(
    where: "Where", experiments: "dict[str, Experiment]", chosen: dict[str, list[str]]
) -> None:
    """Raises ValueError where a training would not fit, as far as can be told."""
    from _reproduce.needs import memory, too_large
    from _reproduce.runs import result_file
    from _reproduce.settings import key_of, trainings

    estimates = {}
    for name, variants in chosen.items():
        for variant in variants:
            if result_file(where, name, experiments[name], variant, 0).exists():
                continue  # it did fit
            for config in trainings(experiments[name], variant, where.scale, 0, where.use):
                if key_of(config) in estimates:
                    continue
                what = f"{name} ({variant})"
                print(f"{what}: estimating its memory", flush=True)
                estimates[key_of(config)] = (what, memory(config, where.data_dir))
    if lines := too_large(estimates.values()):
        raise ValueError(
            "too little memory, nothing was started:\n  "
            + "\n  ".join(lines)
            + "\nUse a larger device or several (each takes a part of the batch), --only, or "
            "--skip_memory_check"
        )


def _set_compiler(where: "Where") -> None:
    """Runs that differ in their seed alone share their compiled programs."""
    import jax

    # Compiling takes longer than all else there.
    jax.config.update("jax_disable_most_optimizations", where.scale == "smoke")
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(where.folder / "compiled"))


def _list(use: dict[str, str], data_dir: str | None) -> None:
    """A table of all names."""
    from _reproduce import registry
    from _reproduce.minutes import MINUTES
    from _reproduce.needs import found
    from _reproduce.settings import run_config, source_of
    from rich.table import Table

    table = Table("name", "what", "data", *SCALES)
    for name, experiment in registry.EXPERIMENTS.items():
        sources = {
            source_of(run_config(experiment, variant, "full", 0, use))
            for variant in experiment.variants
        }
        data = [s if found(s, data_dir) else f"{s} (missing)" for s in sorted(sources)]
        cells = []
        for scale in SCALES:
            settings = experiment.scales[scale]
            runs = len(experiment.at(scale)) * settings.seeds
            minutes = MINUTES[scale].get(name)
            time = "not timed" if minutes is None else f"{minutes:g} min"
            cells.append(f"{runs} {'run' if runs == 1 else 'runs'}, {time}")
        table.add_row(name, experiment.title, ", ".join(data), *cells)
    _cli.table_console().print(table)
    print("Data are those of small and full; smoke needs scikit-learn's digits alone.")
    print("Times: one process on one CPU core; several processes share the work.")


def _stand_ins(pairs: Sequence[str]) -> dict[str, str]:
    """Of --use."""
    found = {}
    for pair in pairs:
        name, equals, other = pair.partition("=")
        if not (name and equals and other):
            raise ValueError(f"--use takes NAME=OTHER, got {pair!r}")
        found[name] = other
    return found


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
