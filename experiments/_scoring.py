"""Scores of a trained network on the images that a script's arguments (`_cli.DATA`) ask for."""

import argparse
from typing import Any

import numpy as np
from rich.progress import Progress

from capsjax import evaluation, runs


def images_of(
    checkpoint: "runs.checkpoints.Checkpoint", args: argparse.Namespace
) -> "evaluation.scoring.EvaluationData":
    """Returns the images that `args` ask for; what is computed then has the run's precision."""
    import jax

    jax.config.update("jax_default_matmul_precision", checkpoint.config.training.matmul_precision)
    return evaluation.scoring.evaluation_data(
        checkpoint.config, args.dataset, args.split, args.data_dir, args.device_budget_mb
    )


def score(
    checkpoint: "runs.checkpoints.Checkpoint", args: argparse.Namespace
) -> tuple["evaluation.scoring.EvaluationData", np.ndarray, Any]:
    """Loads what `args` ask for, scores all its images, and summarizes the scores."""
    import jax

    terminal, data = runs.display.console(), images_of(checkpoint, args)
    if args.split is None and data.split != "test":
        terminal.print(f"{data.name} has no test set: using its {data.split} set.", markup=False)
    evaluation.scoring.check_fits(checkpoint.config, data)
    devices, quiet = jax.local_devices(), not terminal.is_terminal
    with Progress(console=terminal, transient=True, disable=quiet) as bar:
        task = bar.add_task("evaluating", total=len(data.examples))
        scores = evaluation.scoring.score(
            checkpoint.model,
            data.examples,
            batch_size=128 * len(devices) if args.batch_size is None else args.batch_size,
            devices=devices,
            progress=lambda done: bar.update(task, completed=done),
        )
    return data, scores, summarize(checkpoint.model, data, scores)


def summarize(model: Any, data: "evaluation.scoring.EvaluationData", scores: np.ndarray) -> Any:
    """Returns the summary that `capsjax.evaluation.summaries` makes, by the rule of the task."""
    summaries = evaluation.summaries
    labels, versions = data.examples.labels(), data.examples.numbered.versions
    if not data.multi_label:
        return summaries.summarize(scores, labels.argmax(-1), versions=versions)
    logits = evaluation.scoring.gives_logits(model, data.image_shape)
    return summaries.summarize_multi_label(
        data.rule, scores, labels, logits=logits, versions=versions
    )
