"""Evaluates a trained network: accuracy, results by class, confusion matrix.

  python experiments/evaluate.py --checkpoint=runs/mnist
  python experiments/evaluate.py --checkpoint=runs/mnist --dataset=folder:my_digits --split=train
  python experiments/evaluate.py --checkpoint=runs/translated --dataset=affnist_generated
  python experiments/evaluate.py --checkpoint runs/seed0 runs/seed1 runs/seed2   # an ensemble

Nothing but the run's directory is needed: the network, its sizes and its data set's name are in
the checkpoint. The numbers are also written as JSON into that directory.
"""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import _cli
from _provenance import versions
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import numpy as np
    from flax import nnx

    from capsjax.evaluation.scoring import EvaluationData
    from capsjax.evaluation.summaries import MultiLabelSummary, Summary
    from capsjax.runs.checkpoints import Checkpoint

# A wider confusion matrix fits no terminal; the JSON file has it anyway.
MAX_PRINTED_CLASSES = 20


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    of_one = _cli.SHARED["--checkpoint"]["help"]
    several = "several are evaluated as an ensemble, by the mean of their scores"
    _cli.add(parser, "--checkpoint", nargs="+", help=f"{of_one}; {several}")
    _cli.add(parser, "--which", *_cli.DATA)
    parser.add_argument(
        "--output",
        type=_cli.path,
        metavar="FILE.json",
        help="default: evaluation_DATASET_SPLIT.json in the run's directory; for an ensemble "
        "ensemble_of_N_DATASET_SPLIT.json in that of the first",
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Evaluates, prints, writes."""
    from capsjax.evaluation import ensemble, segmentation, summaries
    from capsjax.runs import checkpoints
    from capsjax.runs.display import console
    from capsjax.runs.process import cache_programs

    cache_programs()
    terminal = console()
    members = [checkpoints.read(path, args.which) for path in args.checkpoint]
    model = ensemble.join([m.model for m in members], [m.config for m in members])
    checkpoint = members[0]._replace(model=model)
    data, scores = score(checkpoint, args, terminal)
    for path, member in zip(args.checkpoint, members, strict=True):
        terminal.print(
            f"{member.config.model.name} of {path}, step {member.step}", end=", ", markup=False
        )
    terminal.print(f"on {len(scores):,} images: {data.name}, split {data.split}.", markup=False)
    summary = summarize(model, data, scores)
    if isinstance(summary, summaries.MultiLabelSummary):
        terminal.print(_per_present_class(summary, data.class_names))
        results = multi_label_to_json(summary, data.class_names)
    else:
        terminal.print(_per_class(summary, data.class_names))
        terminal.print(_confusion(summary, data.class_names))
        results = to_json(summary, data.class_names)
    if segmentation.has_masks(model, data.image_shape):
        segmented = segmentation.segment(model, data.examples)
        index = segmentation.foreground_ari(segmented.masks, segmented.objects).mean()
        results["foreground_ari"] = float(index)
        terminal.print(f"Adjusted Rand index of the foreground: {index:.3f}")
    kind = "evaluation" if len(members) == 1 else f"ensemble_of_{len(members)}"
    report = about(members, data) | results | {"versions": versions()}
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    file = _cli.write(text, args.output, args.checkpoint[0], default_file_name(data, kind))
    low, high = summary.interval
    terminal.print(f"Written to {file}.", markup=False)
    terminal.print(f"95 % interval: {100 * low:.1f} to {100 * high:.1f} %")
    # The last line, and always like this: people and scripts look for it.
    terminal.print(f"{data.split} accuracy: {100 * summary.accuracy:.1f} %", markup=False)


def evaluation_data(checkpoint: "Checkpoint", args: argparse.Namespace) -> "EvaluationData":
    """Returns the images that `args` ask for."""
    from capsjax.evaluation import scoring

    return scoring.evaluation_data(
        checkpoint.config,
        args.dataset,
        args.split,
        args.data_dir,
        device_budget_mb=args.device_budget_mb,
    )


def score(
    checkpoint: "Checkpoint", args: argparse.Namespace, terminal: Console
) -> tuple["EvaluationData", "np.ndarray"]:
    """Loads what `args` ask for, and scores all its images."""
    import jax
    from rich.progress import Progress

    from capsjax.evaluation import scoring

    data = evaluation_data(checkpoint, args)
    if args.split is None and data.split != "test":
        terminal.print(f"{data.name} has no test set: this is its {data.split}.", markup=False)
    scoring.check_fits(checkpoint.config, data)
    devices = jax.local_devices()
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("evaluating", total=len(data.examples))
        scores = scoring.score(
            checkpoint.model,
            data.examples,
            batch_size=128 * len(devices) if args.batch_size is None else args.batch_size,
            devices=devices,
            progress=lambda done: bar.update(task, completed=done),
        )
    return data, scores


def summarize(
    model: "nnx.Module", data: "EvaluationData", scores: "np.ndarray"
) -> "Summary | MultiLabelSummary":
    """Returns the results of `score`, by the rule of the task."""
    from capsjax.evaluation import scoring, summaries

    labels, versions = data.examples.labels(), data.examples.numbered.versions
    if data.multi_label:
        logits = scoring.gives_logits(model, data.image_shape)
        return summaries.summarize_multi_label(
            data.rule, scores, labels, logits=logits, versions=versions
        )
    return summaries.summarize(scores, labels.argmax(-1), versions=versions)


def default_file_name(data: "EvaluationData", kind: str = "evaluation") -> str:
    """Returns a file name without the special characters of names such as "folder:a/b"."""
    safe = re.sub(r"[^\w.-]+", "_", f"{data.name}_{data.split}")
    return f"{kind}_{safe}.json"


def about(members: Sequence["Checkpoint"], data: "EvaluationData") -> dict[str, Any]:
    """Says what was evaluated, and on what."""
    networks = [
        {
            "model": member.config.model.name,
            "step": member.step,
            "trained_on": member.config.data.name,
        }
        for member in members
    ]
    network = networks[0] if len(networks) == 1 else {"ensemble": networks}
    return network | {"dataset": data.name, "split": data.split, "images": len(data.examples)}


def to_json(summary: "Summary", class_names: tuple[str, ...]) -> dict[str, Any]:
    """Returns all results of one class per image, as what `json` writes."""
    counts = summary.confusion.sum(-1).tolist()
    right = summary.confusion.diagonal().tolist()
    return {
        "correct": sum(right),
        "accuracy": summary.accuracy,
        "interval_95": list(summary.interval),
        "per_class": [
            # A class without images has no accuracy; NaN is not JSON.
            {"class": name, "images": n, "correct": k, "accuracy": k / n if n else None}
            for name, n, k in zip(class_names, counts, right, strict=True)
        ],
        "confusion": summary.confusion.tolist(),
    }


def multi_label_to_json(
    summary: "MultiLabelSummary", class_names: tuple[str, ...]
) -> dict[str, Any]:
    """Returns all results of several classes per image, as what `json` writes."""
    rows = zip(class_names, summary.present, summary.found, summary.mistaken, strict=True)
    return {
        "accuracy": summary.accuracy,
        "interval_95": list(summary.interval),
        "per_class": [
            {"class": name, "images": int(n), "found": int(k), "mistaken": int(wrong)}
            for name, n, k, wrong in rows
        ],
    }


def _numbers(title: str, first: str, heads: Iterable[str]) -> Table:
    """Returns a table of numbers by class, without rows."""
    table = Table(first, title=title, title_justify="left")
    for head in heads:
        table.add_column(escape(head), justify="right")
    return table


def _share(part: int, of: int) -> str:
    return f"{100 * part / of:.1f} %" if of else "–"


def _per_class(summary: "Summary", names: tuple[str, ...]) -> Table:
    table = _numbers("Accuracy by class", "class", ("images", "correct", "accuracy"))
    counts, right = summary.confusion.sum(-1), summary.confusion.diagonal()
    for name, n, k in zip(names, counts, right, strict=True):
        table.add_row(escape(name), f"{n:,}", f"{k:,}", _share(k, n))
    return table


def _per_present_class(summary: "MultiLabelSummary", names: tuple[str, ...]) -> Table:
    heads = ("images", "found", "predicted where absent")
    table = _numbers("Classes present and predicted", "class", heads)
    numbers = (summary.present, summary.found, summary.mistaken)
    for name, n, k, wrong in zip(names, *numbers, strict=True):
        table.add_row(escape(name), f"{n:,}", _share(k, n), f"{wrong:,}")
    return table


def _confusion(summary: "Summary", names: tuple[str, ...]) -> Table | str:
    if len(names) > MAX_PRINTED_CLASSES:
        return f"The confusion matrix of {len(names)} classes is in the JSON file."
    table = _numbers("Confusion: true class by predicted", "true ↓", names)
    for i, (name, row) in enumerate(zip(names, summary.confusion, strict=True)):
        cells = [f"[bold]{n}[/]" if i == j else str(n) if n else "·" for j, n in enumerate(row)]
        table.add_row(escape(name), *cells)
    return table


if __name__ == "__main__":
    _cli.run(parser(), main)
