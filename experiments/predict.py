"""Classifies image files with a trained network, or exports the network to a file.

  python experiments/predict.py --checkpoint=runs/mnist seven.png three.jpg
  python experiments/predict.py --checkpoint=runs/mnist my_digits 'scans/*.png' --output=all.html
  python experiments/predict.py --checkpoint=releases/digits_capsnet.safetensors --crop docs/photos
  python experiments/predict.py --checkpoint=runs/mnist --export=capsnet.jax_export

Images are converted to grey or colour and scaled like the training images. A file that cannot be
read is skipped and listed at the end; the exit status is then 1. MNIST's digits are light on dark
and fill most of the image: --crop makes photographs of writing look like the training images,
--invert only makes dark ink light. --export writes a file that needs only JAX to run, see
docs/evaluation.md.
"""

import argparse
import csv
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _cli
import numpy as np
from _ink import Ink, cropped, of_training
from etils import epath
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import capsjax
from capsjax import _files, evaluation, runs

BAR_WIDTH = 20
TABLES = 5  # more images than this have a line each


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    option = parser.add_argument
    option("images", nargs="*", metavar="IMAGE", help="files, folders or patterns")
    _cli.add(parser, "--checkpoint", "--which")
    option("--invert", action="store_true", help="turn images into their negatives first")
    text = "crop pictures of writing to the ink, with the margin and brightness of training images"
    option("--crop", action="store_true", help=text)
    text = "with --crop, if the training images are not here: the margin, as a fraction of the side"
    option("--margin", type=float, metavar="PART", help=text)
    _cli.add(parser, "--data_dir")
    option("--top", type=int, default=3, metavar="N", help="classes to show per image")
    text = "write all results: a file that ends in .json, .csv or .html"
    option("--output", type=_cli.file(".json", ".csv", ".html"), metavar="FILE", help=text)
    option("--export", metavar="FILE", help="write the network to run it without capsjax")
    return parser


class Prediction(NamedTuple):
    """The network's scores of an image."""

    file: Path  # the image
    fitted: "capsjax.data.images.Fitted"  # what the network was shown
    scores: np.ndarray  # of all classes
    looks_inverted: bool  # whether its edge is light and the network recognises its negative better

    def best(self, top: int) -> list[int]:
        """Returns the classes with the highest scores, the highest first."""
        return (-self.scores).argsort(kind="stable")[:top].tolist()


def main(args: argparse.Namespace) -> None:
    """Classifies and exports."""
    if not args.images and not args.export:
        raise ValueError("nothing to do: name images to classify or --export=FILE to write")
    if args.margin is not None and not (args.crop and 0 <= args.margin < 0.5):
        raise ValueError(f"--margin goes with --crop, and is from 0 to 0.5, got {args.margin}")
    if args.top < 1:
        raise ValueError(f"--top must be at least 1, got {args.top}")
    if args.crop and args.invert:
        raise ValueError("--crop finds light ink by itself: leave --invert out")
    if args.output and not args.images:
        raise ValueError("--output goes with images: name some")
    import jax

    runs.process.cache_programs()
    terminal = runs.display.console()
    checkpoint = runs.checkpoints.read(args.checkpoint, args.which)
    jax.config.update("jax_default_matmul_precision", checkpoint.config.training.matmul_precision)
    broken: dict[str, str] = {}
    if args.images:
        like = _training_ink(checkpoint, args) if args.crop else None
        paths = files(args.images, broken)
        predictions = classify(checkpoint, paths, broken, invert=args.invert, like=like)
        task = checkpoint.config.task
        show(terminal, predictions, task, args)
        weak = sum(p.scores.max() < 0.5 for p in predictions)
        lengths = not evaluation.scoring.gives_logits(checkpoint.model, task.input_shape)
        if lengths and 2 * weak > len(predictions):
            terminal.print(
                f"{weak} of {len(predictions)} images reach 0.5 in no class: they may look unlike "
                "the training images. --output=FILE.html shows what the network saw."
            )
        if args.output:
            write(args.output, checkpoint, predictions, broken, args.top)
            terminal.print(f"Written to {args.output}.", markup=False)
    if args.export:
        shape, platforms = checkpoint.config.task.input_shape, evaluation.export.PLATFORMS
        contents = evaluation.export.export_scores(checkpoint.model, shape)
        _files.write_atomically(args.export, contents)
        said = f"for {', '.join(platforms)}; jax {jax.__version__}"
        terminal.print(f"Written to {args.export}, {said}.", markup=False)
    if broken:
        lines = [f"{len(broken)} could not be read:", *broken.values()]
        print("\n  ".join(lines), file=sys.stderr)
        sys.exit(1)


def _training_ink(checkpoint: "runs.checkpoints.Checkpoint", args: argparse.Namespace) -> Ink:
    """Returns how writing stands in the training images, or what --margin says."""
    if checkpoint.config.task.input_shape[-1] != 1:
        raise ValueError("--crop is for networks of grey images; this one takes colour")
    if args.margin is not None:
        return Ink(1 - 2 * args.margin)
    try:
        return of_training(checkpoint.config, args.data_dir)
    except FileNotFoundError as error:
        raise ValueError(
            "--crop measures the margin in the training images, which are not here: add "
            f"--margin=0.14, as in MNIST, or --data_dir. {error}"
        ) from None


def files(patterns: Sequence[str], broken: dict[str, str]) -> list[Path]:
    """Returns the files that are meant, each once; what is not there goes to `broken`."""
    unique: dict[Path, None] = {}
    for pattern in patterns:
        path, images = Path(os.path.expanduser(pattern)), []
        # Not with the module glob, which follows links and so never ends where they loop.
        top = Path(path.anchor)
        found = (p for p in top.glob(str(path.relative_to(top))) if not p.name.startswith("."))
        named = [path] if path.exists() else sorted(found)
        for entry in named:
            images += _images_in(entry) if entry.is_dir() else [entry]
        if not images:
            broken[pattern] = f"{pattern}: {'no images in it' if named else 'no such file'}"
        unique |= dict.fromkeys(images)
    return list(unique)


def _images_in(folder: Path) -> list[Path]:
    """Lists the images in a folder and its subfolders, the hidden ones left out."""
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    shown = (name for name in names if not any(part.startswith(".") for part in name.parts))
    return [folder / name for name in filter(capsjax.data.images.is_image_name, shown)]


def classify(
    checkpoint: "runs.checkpoints.Checkpoint",
    files: Sequence[Path],
    broken: dict[str, str],
    *,
    invert: bool,
    like: Ink | None = None,
) -> list[Prediction]:
    """Classifies all files that can be read; messages on the others go to `broken`.

    With `like` they are cropped to their ink, which then stands as it says.
    """
    fitting, read = evaluation.scoring.fitting(checkpoint.config), capsjax.data.images.read_fitted

    def fitted(file: Path) -> "capsjax.data.images.Fitted":
        if like is None:
            return read(file, fitting, invert=invert)
        image = read(file, capsjax.data.images.Fitting(channels=1), invert=invert)
        pixels, steps = cropped(image.pixels, like, (fitting.width, fitting.height))
        return image._replace(pixels=pixels, steps=[*image.steps, *steps], edge=0.0)

    images = {}
    for file in files:
        try:
            images[file] = fitted(file)
        except (ValueError, OSError) as error:
            broken[str(file)] = str(error) if str(file) in str(error) else f"{file}: {error}"
    scores = _scores(checkpoint.model, [image.pixels for image in images.values()])
    light = [file for file, image in images.items() if image.edge > 0.5]
    negatives = [read(file, fitting, invert=not invert).pixels for file in light]
    of_negatives = dict(zip(light, _scores(checkpoint.model, negatives), strict=True))
    return [
        Prediction(file, image, row, bool(np.max(of_negatives.get(file, -np.inf)) > row.max()))
        for (file, image), row in zip(images.items(), scores, strict=True)
    ]


def _scores(model: Any, images: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return evaluation.batches.in_batches(_answer, model, [np.stack(images)]) if images else ()


def _answer(model: Any, images: Any) -> Any:
    return model(images).scores


def show(
    terminal: Console, predictions: Sequence[Prediction], task: Any, args: argparse.Namespace
) -> None:
    """Tables of a few images, a line for each of many, and which look inverted."""
    names, top = task.class_names, args.top
    for prediction in predictions:
        if len(predictions) <= TABLES:
            terminal.print(_table(prediction, names, top))
        else:
            said = (f"{names[i]} {prediction.scores[i]:.3f}" for i in prediction.best(top))
            line = f"{prediction.file}: {', '.join(said)}"
            terminal.print(line, markup=False, highlight=False, soft_wrap=True)
    if inverted := [str(p.file) for p in predictions if p.looks_inverted]:
        advice = "Leave --invert out" if args.invert else "Try --invert"
        if task.input_shape[-1] == 1 and not args.invert:
            advice += ", or --crop, which decides for each image"
        more = f" and {len(inverted) - TABLES} more" if len(inverted) > TABLES else ""
        terminal.print(
            f"Dark on light, score higher when inverted: {', '.join(inverted[:TABLES])}"
            f"{more}. {advice}.",
            markup=False,
        )


def _table(prediction: Prediction, names: tuple[str, ...], top: int) -> Table:
    done = ", ".join(prediction.fitted.steps) or "as it is"
    table = Table("class", title=escape(f"{prediction.file} ({done})"), title_justify="left")
    table.add_column("score", justify="right")
    table.add_column("", min_width=BAR_WIDTH)
    for i in prediction.best(top):
        score = float(prediction.scores[i])
        bar = "█" * round(BAR_WIDTH * min(max(score, 0.0), 1.0))
        table.add_row(escape(names[i]), f"{score:.3f}", bar)
    return table


def write(
    path: epath.Path,
    checkpoint: "runs.checkpoints.Checkpoint",
    predictions: Sequence[Prediction],
    broken: dict[str, str],
    top: int,
) -> None:
    """Writes all results, in the format of the file's ending."""
    names, network = checkpoint.config.task.class_names, checkpoint.config.model.name
    classes = [names[p.best(1)[0]] for p in predictions]
    if path.suffix == ".html":
        from _report.html import Html
        from _report.pages import figure, gallery

        by_class: dict[str, list[Html]] = {name: [] for name in names}
        for p, name in zip(predictions, classes, strict=True):
            scores = [f"{names[i]} {p.scores[i]:.3f}" for i in p.best(top)]
            hint = ["looks inverted"] if p.looks_inverted else []
            lines = [p.file.name, *scores, *hint]
            by_class[name].append(figure(p.fitted.pixels, str(p.file), lines))
        text = gallery(network, by_class, list(broken.values()))
    elif path.suffix == ".json":
        images = [
            {
                "file": str(p.file),
                "class": name,
                "scores": dict(zip(names, map(float, p.scores), strict=True)),
                "done": list(p.fitted.steps),
                "looks_inverted": p.looks_inverted,
            }
            for p, name in zip(predictions, classes, strict=True)
        ]
        about = {"model": network, "step": checkpoint.step, "images": images, "not_read": broken}
        text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    else:
        rows = [["file", "class", "looks_inverted", "error", *names]]
        for p, name in zip(predictions, classes, strict=True):
            scores = [f"{score:.6g}" for score in p.scores]
            rows.append([str(p.file), name, str(p.looks_inverted), "", *scores])
        rows += [[file, "", "", error, *[""] * len(names)] for file, error in broken.items()]
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        text = buffer.getvalue()
    _files.write_atomically(path, text)


if __name__ == "__main__":
    _cli.run(parser(), main)
