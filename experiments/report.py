"""Shows trained networks on one page: what they learned, mistakes, reconstructions, poses.

  python experiments/report.py runs/mnist
  python experiments/report.py runs/a runs/b runs/c/seed_*   # compared
  python experiments/report.py --results=runs/reproduce   # pages of all that reproduce.py computed
  python experiments/report.py --results=docs/results/records --pages=docs/results
  python experiments/report.py runs/demo --poses=docs/poses.png   # for README.md

The page is a single HTML file that loads nothing from outside: it can be mailed, kept, and opened
anywhere. Without JavaScript it shows the same as still pictures.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _cli
import _configs
import ml_collections
from _provenance import versions
from _scoring import images_of, score

import capsjax
from capsjax import _files, evaluation, runs, training

if TYPE_CHECKING:
    from _report.results import Results


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    option = parser.add_argument
    text = "--workdir of train.py, or a file of release.py; several are compared"
    option("runs", nargs="*", metavar="DIR", help=text)
    text = "--workdir of reproduce.py: write the pages of all its tables and figures instead"
    option("--results", type=_cli.local_folder, metavar="DIR", help=text)
    text = "with --results: folder for these pages and index.md; default: its subfolder pages"
    option("--pages", type=Path, metavar="DIR", help=text)
    text = "instead of the page, draw what changes as elements of the class poses move"
    option("--poses", type=_cli.file(".png"), metavar="FILE.png", help=text)
    _cli.add(parser, "--which", *_cli.DATA)
    text = "default: report.html in that directory; comparison.html in the first of several"
    option("--output", type=_cli.file(".html"), metavar="FILE.html", help=text)
    return parser


def main(args: argparse.Namespace) -> None:
    """Writes the page asked for."""
    for is_wrong, message in (
        (bool(args.runs) == bool(args.results), "name a run's directory, or --results=DIR"),
        (args.pages and not args.results, "--pages goes with --results"),
        (args.output and args.results, "--output goes with runs, --pages with --results"),
        (args.poses and args.output, "--poses is drawn instead of the page: leave --output out"),
        (args.poses and len(args.runs) != 1, "--poses goes with one run's directory"),
        (len(set(args.runs)) < len(args.runs), "a run is named twice: name each once"),
    ):
        if is_wrong:
            raise ValueError(message)
    if args.results:
        of_results(args.results, args.pages or args.results / "pages")
    else:
        runs.process.cache_programs()
        of_runs(args)


def of_results(workdir: Path, pages: Path) -> None:
    """Writes the pages of all tables and figures."""
    from _reproduce import results
    from papers import EXPERIMENTS, PAPERS

    papers = pages.parent / "papers"  # beside docs/results, but not somebody's own pages
    findings = {n: p.FINDING if (papers / f"{n}.md").is_file() else "" for n, p in PAPERS.items()}
    gathered = results.gather_all(results.folders(workdir), EXPERIMENTS)
    files = sum(len(results.write(comparisons, pages)) for comparisons in gathered.values())
    _files.write_atomically(pages / "index.md", results.index(gathered, findings))
    print(f"{files + 1} files in {pages}: begin with index.md.")


def of_runs(args: argparse.Namespace) -> None:
    """Evaluates one network and writes its page, or several and writes how they compare."""
    members = [runs.checkpoints.read(run, args.which) for run in args.runs]
    first, kept = members[0], _cli.kept(args)
    which = "mean" if args.which == "mean" else first.step
    command = ["python", "experiments/report.py", *kept, *args.runs]

    def again(data: Any, which: str | int) -> str:
        given = f"--which={which}", f"--dataset={data.name}", f"--split={data.split}"
        return shlex.join([*command, *given])

    if len(members) == 1 and evaluation.segmentation.has_masks(
        first.model, first.config.task.input_shape
    ):
        from _report import pages

        if args.poses:
            raise ValueError("--poses moves the poses of class capsules; this network has slots")
        data = images_of(first, args)
        _write(args, pages.of_slots(first, data, [again(data, which)]))
        return
    answers = [_answers(*run, args) for run in zip(args.runs, members, strict=True)]
    results = answers[0]
    if args.poses is not None:
        from _report.decoder import poses_picture
        from _report.results import examples

        picture = poses_picture(results, examples(results))
        with _files.replacing(args.poses) as file:
            picture.save(file, "PNG", optimize=True)
        runs.display.say(f"Written to {args.poses}.")
        return
    if len(answers) > 1:
        from _report import comparison  # it takes seconds to import SciPy's statistics

        text = comparison.page(answers, versions(), [again(results.dataset, args.which)])
        _write(args, text, "comparison.html")
    else:
        from _report.pages import of_run

        (run,) = args.runs
        workdir = f"runs/{Path(run).stem}" if runs.release.is_one(run) else run
        train = train_command(first.config, workdir, kept)
        train = train or f"# No file of configs/ fits; the values are in {run}/config.json."
        _write(args, of_run(results, versions(), [train, again(results.dataset, which)]))


def _write(args: argparse.Namespace, text: str, name: str = "report.html") -> None:
    file = _cli.write(text, args.output, args.runs[0], name)
    runs.display.say(f"Written to {file} ({file.stat().length / 1e6:.1f} MB).")


def train_command(
    config: ml_collections.ConfigDict, workdir: str, kept: Sequence[str] = ()
) -> str | None:
    """Returns experiments/train.py with the nearest file of configs/ and what differs from it.

    A run does not know its file. None: none has the same keys, as after an update.
    """

    def given(config: ml_collections.ConfigDict) -> dict[str, Any]:
        flat = training.config.flatten(config).items()
        return {k: v for k, v in flat if not k.startswith("task.")}  # which follows from the data

    wanted, candidates = given(config), list[list[str]]()
    # Which train.py would choose for few pictures unless they are given.
    lengths = ("training.epochs", "training.batch_size") if ":" in config.data.name else ()
    names = [f"{section}.name" for section in training.config.NAMED]
    for file in _configs.files():
        base = _configs.read(file)
        changes = {k: wanted[k] for k in names if given(base)[k] != wanted[k]}
        values = given(training.config.override(base, changes))
        if values.keys() == wanted.keys():
            changes |= {k: v for k, v in wanted.items() if values[k] != v or k in lengths}
            changed = [f"--config.{key}={value}" for key, value in changes.items()]
            words = [f"--config=configs/{file}.py", f"--workdir={workdir}", *kept, *changed]
            candidates.append(["python", "experiments/train.py", *words])
    return shlex.join(min(candidates, key=len)) if candidates else None


def _answers(
    run: str, checkpoint: "runs.checkpoints.Checkpoint", args: argparse.Namespace
) -> "Results":
    """Returns a network and its answers on the images that `args` ask for."""
    from _report.results import Results

    # The checkpoint's own history ends where it was saved; the run may have gone on.
    history = runs.checkpoints.read(run, "latest").history
    if not history.training("loss"):
        every = checkpoint.config.training.log_every_steps
        raise ValueError(
            f"{run} has a checkpoint of step {checkpoint.step} and no metrics yet: train it for at "
            f"least {every} steps"
        )
    data, scores, summary = score(checkpoint, args)
    if data.multi_label:
        raise ValueError(
            f"{data.name}: the page cannot show images with several classes; use "
            "experiments/evaluate.py for the numbers"
        )
    rendered = capsjax.data.tasks.render(data.examples)
    labels = rendered.labels.argmax(-1).astype("int32")
    dataset = capsjax.data.Dataset(rendered.images, labels, data.class_names, data.name, data.split)
    return Results(run, checkpoint, history, dataset, scores, summary)


if __name__ == "__main__":
    _cli.run(parser(), main)
