"""Shows trained networks on one page: what they learned, mistakes, reconstructions, poses.

  python experiments/report.py runs/mnist
  python experiments/report.py runs/a runs/b runs/c/seed_*   # compared
  python experiments/report.py --results=runs/reproduce   # pages of all that reproduce.py computed
  python experiments/report.py --results=docs/results/records --pages=docs/results
  python experiments/report.py runs/demo --poses=docs/poses.png   # for README.md

The page is a single HTML file that loads nothing from outside: it can be mailed, kept, and opened
anywhere. Its scripts only move what is in it; without them it shows the same in pictures.
"""

import argparse
import io
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import _cli
from _provenance import versions

if TYPE_CHECKING:
    from _report.results import Results
    from etils import epath
    from rich.console import Console

    from capsjax.runs.checkpoints import Checkpoint


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    parser.add_argument(
        "runs",
        nargs="*",
        type=_cli.path,
        metavar="DIR",
        help="--workdir of experiments/train.py, or a file of experiments/release.py; several are "
        "compared, those of one config as seeds of it",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="--workdir of experiments/reproduce.py: pages and figures of all its names instead",
    )
    parser.add_argument(
        "--pages",
        type=Path,
        metavar="DIR",
        help="with --results: where they are written, with index.md; default: pages in it",
    )
    parser.add_argument(
        "--poses",
        type=Path,
        metavar="FILE.png",
        help="draw elements of the class capsules' poses moved, instead of the page of a run",
    )
    _cli.add(parser, "--which", *_cli.DATA)
    parser.add_argument(
        "--output",
        type=_cli.path,
        metavar="FILE.html",
        help="default: report.html in that directory; comparison.html in the first of several",
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Writes the page asked for."""
    if bool(args.runs) == (args.results is not None):
        raise _cli.UsageError("name a run's directory, or --results=DIR")
    if args.pages is not None and args.results is None:
        raise _cli.UsageError("--pages goes with --results")
    if args.output is not None and args.results is not None:
        raise _cli.UsageError("--output goes with runs; --pages says where pages of results go")
    if args.poses is not None and len(args.runs) != 1:
        raise _cli.UsageError("--poses goes with one run's directory")
    if args.runs:
        of_runs(args)
    else:
        of_results(args)


def of_results(args: argparse.Namespace) -> None:
    """Writes the pages of all tables and figures."""
    from _reproduce import results
    from papers import EXPERIMENTS, PAPERS

    stores = results.folders(args.results)
    for store in stores:
        for line in results.of_no_name(store, EXPERIMENTS):
            print(f"Kept apart: {line}")
    names = results.gather_all(stores, EXPERIMENTS)
    findings = {name: paper.FINDING for name, paper in PAPERS.items()}
    pages = args.pages or args.results / "pages"
    files = results.write_all(names, findings, pages)
    print(f"{len(files)} files in {pages}: begin with index.md.")


def of_runs(args: argparse.Namespace) -> None:
    """Evaluates one network and writes its page, or several and writes how they compare."""
    import evaluate

    from capsjax.evaluation.segmentation import has_masks
    from capsjax.runs import checkpoints, release
    from capsjax.runs.display import console
    from capsjax.runs.process import cache_programs

    if len(set(args.runs)) < len(args.runs):
        raise _cli.UsageError("a run is named twice: name each once")
    cache_programs()
    terminal = console()
    members = [checkpoints.read(run, args.which) for run in args.runs]
    names = [str(run) for run in args.runs]
    if len(members) == 1 and has_masks(members[0].model, members[0].config.task.input_shape):
        from _report import segments

        data = evaluate.evaluation_data(members[0], args)
        command = shlex.join(["python", "experiments/report.py", *names])
        _write(segments.page(members[0], data, [command]), args, args.runs[0])
        return
    runs = [_answers(*run, args, terminal) for run in zip(args.runs, members, strict=True)]
    results, *others = runs
    if args.poses is not None:
        from _report.decoded import poses_picture
        from _report.results import examples

        buffer = io.BytesIO()
        poses_picture(results, examples(results)).save(buffer, "PNG", optimize=True)
        _cli.save(args.poses, buffer.getvalue())
        terminal.print(f"Written to {args.poses}.", markup=False)
        return
    imports = [f"--import={file}" for file in args.imports]
    which = args.which if others else results.checkpoint.step
    images = [f"--dataset={results.dataset.name}", f"--split={results.dataset.split}"]
    words = ["python", "experiments/report.py", *imports, *names, f"--which={which}", *images]
    command = shlex.join(words)
    if others:
        from _report import comparison  # it takes seconds to import SciPy's statistics

        text = comparison.page(names, runs, versions(), [command])
        _write(text, args, args.runs[0], "comparison.html")
    else:
        from _report.again import train_command
        from _report.page import page

        (run,) = args.runs
        workdir = f"runs/{Path(run).stem}" if release.is_one(run) else run
        train = train_command(results.checkpoint.config, workdir, imports)
        train = train or f"# No file of configs/ fits; the values are in {run}/config.json."
        _write(page(results, versions(), [train, command]), args, run)


def _write(text: str, args: argparse.Namespace, run: "epath.Path", name: str = "report.html"):
    from capsjax.runs.display import console

    file = _cli.write(text, args.output, run, name)
    console().print(f"Written to {file} ({file.stat().length / 1e6:.1f} MB).", markup=False)


def _answers(
    run: "epath.Path", checkpoint: "Checkpoint", args: argparse.Namespace, terminal: "Console"
) -> "Results":
    """Returns a network and its answers on the images that `args` ask for."""
    import evaluate
    from _report.results import Results

    from capsjax.data import Dataset, tasks
    from capsjax.evaluation import summaries
    from capsjax.runs import checkpoints

    # The checkpoint's own history ends where it was saved; the run may have gone on.
    history = checkpoints.read(run, "latest").history
    if not any(record["split"] == "train" for record in history.records):
        every = checkpoint.config.training.log_every_steps
        raise ValueError(
            f"{run} has a checkpoint of step {checkpoint.step} and no metrics yet: train it for at "
            f"least {every} steps"
        )
    data, scores = evaluate.score(checkpoint, args, terminal)
    if data.multi_label:
        raise ValueError(
            f"{data.name}: the page shows images of one class each; experiments/evaluate.py gives "
            "the numbers for several"
        )
    rendered = tasks.render(data.examples)
    labels = rendered.labels.argmax(-1).astype("int32")
    dataset = Dataset(rendered.images, labels, data.class_names, data.name, data.split)
    versions = data.examples.numbered.versions
    summary = summaries.summarize(scores, dataset.labels, versions=versions)
    return Results(checkpoint, history, dataset, scores, summary)


if __name__ == "__main__":
    _cli.run(parser(), main)
