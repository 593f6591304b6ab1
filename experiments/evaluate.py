"""Evaluates a trained network: accuracy, results by class, confusion matrix.

  python experiments/evaluate.py --checkpoint=runs/mnist
  python experiments/evaluate.py --checkpoint=runs/mnist --dataset=folder:my_digits --split=train
  python experiments/evaluate.py --checkpoint=runs/translated --dataset=affnist_generated
  python experiments/evaluate.py --checkpoint runs/seed0 runs/seed1 runs/seed2   # an ensemble

Only the run's directory is needed: the checkpoint holds the network, its sizes and the name of its
data set. The results are also written there as JSON.
"""

import argparse
import errno
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import _cli
from _provenance import versions
from _scoring import score
from rich.markup import escape
from rich.table import Column, Table

from capsjax import _files, evaluation, runs

# A wider confusion matrix fits no terminal; the JSON file has it anyway.
MAX_PRINTED_CLASSES = 20


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    of_one = _cli.SHARED["--checkpoint"]["help"]
    several = "several are evaluated as an ensemble, by the mean of their scores"
    _cli.add(parser, "--checkpoint", action="extend", nargs="+", help=f"{of_one}; {several}")
    _cli.add(parser, "--which", *_cli.DATA)
    parser.add_argument(
        "--output",
        type=_cli.file(".json"),
        metavar="FILE.json",
        help="default: evaluation_DATASET_SPLIT.json in the run's directory (with --which, "
        "…_WHICH.json); for an ensemble, ensemble_of_N_HASH_DATASET_SPLIT.json in the first run's",
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Evaluates, prints, writes."""
    if len(set(args.checkpoint)) < len(args.checkpoint):
        raise ValueError("a run is named twice: name each once")
    runs.process.cache_programs()
    terminal = runs.display.console()
    members = {path: runs.checkpoints.read(path, args.which) for path in args.checkpoint}
    first, configs = members[args.checkpoint[0]], [m.config for m in members.values()]
    model = evaluation.ensemble.join([m.model for m in members.values()], configs)
    data, scores, summary = score(first._replace(model=model), args)
    for path, member in members.items():
        of = f"{member.config.model.name} of {path}, step {member.step}"
        terminal.print(of, end=", ", markup=False)
    terminal.print(f"on {len(scores):,} images: {data.name}, split {data.split}.", markup=False)
    results = to_json(summary, data.class_names)
    terminal.print(_by_class(results["per_class"]))
    if "confusion" in results:
        terminal.print(_confusion(results["confusion"], data.class_names))
    if evaluation.segmentation.has_masks(model, data.image_shape):
        segmented = evaluation.segmentation.segment(model, data.examples)
        index = evaluation.segmentation.foreground_ari(segmented.masks, segmented.objects).mean()
        results["foreground_ari"] = float(index)
        terminal.print(f"Adjusted Rand index of the foreground: {index:.3f}")
    report = about(members, data) | results | {"versions": versions()}
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    kind = "evaluation"
    if len(members) > 1:  # other members of the same first run have another file
        kind = f"ensemble_of_{len(members)}_{_files.digest(*sorted(args.checkpoint))[:6]}"
    # Without the special characters of names such as "folder:a/b".
    which = "" if args.which == "best" else f"_{args.which}"
    safe = re.sub(r"[^\w.-]+", "_", f"{data.name}_{data.split}{which}")
    try:
        file = _cli.write(text, args.output, args.checkpoint[0], f"{kind}_{safe}.json")
        terminal.print(f"Written to {file}.", markup=False)
    except OSError as error:
        if args.output or error.errno not in (errno.EACCES, errno.EROFS):
            raise
        terminal.print(f"Not written ({error}): --output=FILE writes it elsewhere.", markup=False)
    low, high = summary.interval
    terminal.print(f"95 % interval: {100 * low:.2f} to {100 * high:.2f} %")
    # The last line, and always like this: people and scripts look for it.
    terminal.print(f"{data.split} accuracy: {100 * summary.accuracy:.2f} %", markup=False)


def about(
    members: Mapping[str, "runs.checkpoints.Checkpoint"], data: "evaluation.scoring.EvaluationData"
) -> dict[str, Any]:
    """Says what was evaluated, and on what."""
    networks = [
        {
            "checkpoint": path,
            "model": member.config.model.name,
            "step": member.step,
            "trained_on": member.config.data.name,
        }
        for path, member in members.items()
    ]
    network = networks[0] if len(networks) == 1 else {"ensemble": networks}
    return network | {"dataset": data.name, "split": data.split, "images": len(data.examples)}


def to_json(summary: Any, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Returns all results as what `json` writes; an image has one class, or several."""
    results = {"accuracy": summary.accuracy, "interval_95": list(summary.interval)}
    if isinstance(summary, evaluation.summaries.MultiLabelSummary):
        rows = zip(class_names, summary.present, summary.found, summary.mistaken, strict=True)
        per_class = [
            {"class": name, "images": int(n), "found": int(k), "mistaken": int(wrong)}
            for name, n, k, wrong in rows
        ]
        return results | {"per_class": per_class}
    counts = summary.confusion.sum(-1).tolist()
    right = summary.confusion.diagonal().tolist()
    per_class = [
        # A class without images has no accuracy; NaN is not JSON.
        {"class": name, "images": n, "correct": k, "accuracy": k / n if n else None}
        for name, n, k in zip(class_names, counts, right, strict=True)
    ]
    confusion = {"per_class": per_class, "confusion": summary.confusion.tolist()}
    return {"correct": sum(right)} | results | confusion


def _numbers(title: str, first: str, heads: Iterable[str]) -> Table:
    """Returns a table of numbers by class, without rows."""
    numbers = (Column(escape(head), justify="right") for head in heads)
    return Table(first, *numbers, title=title, title_justify="left")


def _by_class(per_class: Sequence[dict[str, Any]]) -> Table:
    several = "found" in per_class[0]
    if several:
        title, heads = "Classes present and predicted", ("found", "predicted where absent")
    else:
        title, heads = "Accuracy by class", ("correct", "accuracy")
    table = _numbers(title, "class", ("images", *heads))
    for row in per_class:
        number, right = row["images"], row["found" if several else "correct"]
        share = f"{100 * right / number:.1f} %" if number else "–"
        cells = (share, f"{row['mistaken']:,}") if several else (f"{right:,}", share)
        table.add_row(escape(row["class"]), f"{number:,}", *cells)
    return table


def _confusion(counts: Sequence[Sequence[int]], names: tuple[str, ...]) -> Table | str:
    if len(names) > MAX_PRINTED_CLASSES:
        return f"The confusion matrix of {len(names)} classes is in the JSON file."
    table = _numbers("Confusion: true class by predicted", "true ↓", names)
    for i, (name, row) in enumerate(zip(names, counts, strict=True)):
        cells = [f"[bold]{n}[/]" if i == j else str(n) if n else "·" for j, n in enumerate(row)]
        table.add_row(escape(name), *cells)
    return table


if __name__ == "__main__":
    _cli.run(parser(), main)
