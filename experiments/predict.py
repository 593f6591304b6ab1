"""Classifies image files with a trained network, or writes the network as a file of its own.

  python experiments/predict.py --checkpoint=runs/mnist seven.png three.jpg
  python experiments/predict.py --checkpoint=runs/mnist my_digits 'scans/*.png' --output=all.html
  python experiments/predict.py --checkpoint=releases/digits_capsnet.safetensors --crop docs/photos
  python experiments/predict.py --checkpoint=runs/mnist --export=capsnet.jax_export
  python experiments/predict.py --checkpoint=runs/mnist --export=capsnet.onnx

Files, folders (all images in them) and patterns are taken. Images are made grey or coloured and
scaled as those that the network was trained on, keeping their proportions, and what was done is
said. A file that cannot be read is skipped and listed at the end; the exit status is then 1.
Digits of MNIST are light on dark and fill most of the image: --crop makes photographs of writing
like the training images, --invert alone turns ink on paper light. --output writes JSON, CSV or a
page of pictures, by its ending. The exported file holds the parameters. If its name ends in .onnx,
ONNX runtimes read it; otherwise it needs JAX alone, see docs/evaluation.md.
"""

import argparse
import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import _cli
from rich.markup import escape

if TYPE_CHECKING:
    import numpy as np
    from _ink import Ink
    from rich.console import Console
    from rich.table import Table

    from capsjax.data.images import Fitted
    from capsjax.runs.checkpoints import Checkpoint

BAR_WIDTH = 20
TABLES = 5  # more images than this have a line each
AT_ONCE = 128
SMALL = 0.45  # of the side: writing in images of one thing is larger
OUTPUTS = (".json", ".csv", ".html")


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    parser.add_argument(
        "images", nargs="*", metavar="IMAGE", help="files, folders or patterns to classify"
    )
    _cli.add(parser, "--checkpoint", "--which")
    parser.add_argument(
        "--invert", action="store_true", help="turn images into their negatives first"
    )
    parser.add_argument(
        "--crop",
        action="store_true",
        help="crop pictures of writing to the ink, with the margin of the training images; each is "
        "inverted where its ink is darker than the ground and theirs is not, or the other way",
    )
    parser.add_argument(
        "--margin",
        type=float,
        metavar="PART",
        help="with --crop where the training data are not at hand: the margin in parts of the "
        "side, such as 0.14 for MNIST, of light ink on dark ground",
    )
    _cli.add(parser, "--data_dir")
    parser.add_argument(
        "--top",
        type=_cli.positive,
        default=3,
        metavar="N",
        help="classes to show per image; default: 3",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write all results: a file that ends in .json, .csv or .html",
    )
    parser.add_argument(
        "--export",
        type=_cli.path,
        metavar="FILE",
        help="write the network for JAX, or as ONNX if FILE ends in .onnx",
    )
    return parser


class Prediction(NamedTuple):
    """The network's scores of an image."""

    file: Path  # the image
    fitted: "Fitted"  # what the network was shown
    scores: "np.ndarray"  # of all classes
    looks_inverted: bool  # whether its edge is light and the network recognises its negative better

    def best(self, top: int) -> list[int]:
        """Returns the classes with the highest scores, the highest first."""
        return (-self.scores).argsort(kind="stable")[:top].tolist()


def main(args: argparse.Namespace) -> None:
    """Classifies and exports."""
    if not args.images and not args.export:
        raise _cli.UsageError("nothing to do: name images to classify or --export=FILE to write")
    if args.margin is not None and not (args.crop and 0 <= args.margin < 0.5):
        raise _cli.UsageError(f"--margin goes with --crop, and is from 0 to 0.5, got {args.margin}")
    if args.output and args.output.suffix not in OUTPUTS:
        raise _cli.UsageError(f"--output must end in {', '.join(OUTPUTS)}, got {args.output}")
    import jax

    from capsjax.evaluation import export
    from capsjax.evaluation.onnx import export_onnx
    from capsjax.runs import checkpoints
    from capsjax.runs.display import console
    from capsjax.runs.process import cache_programs

    cache_programs()
    terminal = console()
    checkpoint = checkpoints.read(args.checkpoint, args.which)
    task = checkpoint.config.task
    broken: dict[str, str] = {}
    if args.images:
        like = _training_ink(checkpoint, args) if args.crop else None
        paths = files(args.images, broken)
        predictions = classify(checkpoint, paths, broken, invert=args.invert, like=like)
        show(terminal, predictions, task.class_names, args.top)
        if args.output:
            write(args.output, checkpoint, predictions, broken, args.top)
            terminal.print(f"Written to {args.output}.", markup=False)
    if args.export:
        if args.export.suffix == ".onnx":
            contents = export_onnx(checkpoint.model, task.input_shape)
            of = "ONNX, checked with onnxruntime"
        else:
            contents = export.export_scores(checkpoint.model, task.input_shape)
            of = f"for {', '.join(export.PLATFORMS)}; jax {jax.__version__}"
        _cli.save(args.export, contents)
        terminal.print(f"Written to {args.export}, {of}.", markup=False)
    if broken:
        lines = [f"{len(broken)} could not be read:", *broken.values()]
        print("\n  ".join(lines), file=sys.stderr)
        sys.exit(1)


def _training_ink(checkpoint: "Checkpoint", args: argparse.Namespace) -> "Ink":
    """Returns how writing stands in the training images, or what --margin says."""
    from _ink import Ink, of_training

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
    from capsjax.data.images import is_image_name

    unique: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern).expanduser()
        # Not with the module glob, which follows links and so never ends where they loop.
        named = (
            [path]
            if path.exists()
            else sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        )
        images = [
            file
            for entry in named
            for file in (
                sorted(filter(is_image_name, entry.rglob("*"))) if entry.is_dir() else [entry]
            )
        ]
        if not images:
            what = "no images in it" if named else "no such file"
            broken[pattern] = f"{pattern}: {what}"
        unique |= dict.fromkeys(images)
    return list(unique)


def classify(
    checkpoint: "Checkpoint",
    files: Sequence[Path],
    broken: dict[str, str],
    *,
    invert: bool,
    like: "Ink | None" = None,
) -> list[Prediction]:
    """Classifies all files that can be read; messages on the others go to `broken`.

    With `like` they are cropped to their ink, which then stands as it says.
    """
    import numpy as np
    from _ink import cropped
    from flax import nnx

    from capsjax.data.images import Fitting, read_fitted
    from capsjax.evaluation.scoring import fitting

    wanted = fitting(checkpoint.config)
    network = nnx.jit(lambda model, images: model(images).scores)

    def scores(images: Sequence["Fitted"]) -> "np.ndarray":
        # Where there are several batches all are of one size, so that one program does.
        size = min(AT_ONCE, len(files))
        batch = np.zeros((size, *checkpoint.config.task.input_shape), np.uint8)
        batch[: len(images)] = [image.pixels for image in images]
        return np.asarray(network(checkpoint.model, batch))[: len(images)]

    def fitted(file: Path) -> "Fitted":
        if like is None:
            return read_fitted(file, wanted, invert=invert)
        image = read_fitted(file, Fitting(channels=1), invert=invert)
        pixels, steps = cropped(image.pixels, like, (wanted.width, wanted.height))
        return image._replace(pixels=pixels, steps=[*image.steps, *steps], edge=0.0)

    def read(files: Sequence[Path]) -> Iterator[tuple[Path, "Fitted"]]:
        for file in files:
            try:
                yield file, fitted(file)
            except (ValueError, OSError) as error:
                broken[str(file)] = str(error) if str(file) in str(error) else f"{file}: {error}"

    predictions = []
    readable = read(files)
    while batch := list(itertools.islice(readable, AT_ONCE)):
        batch_scores = scores([fitted for _, fitted in batch])
        light = [i for i, (_, fitted) in enumerate(batch) if fitted.edge > 0.5]
        negatives = [read_fitted(batch[i][0], wanted, invert=not invert) for i in light]
        better = np.zeros(len(batch), bool)
        if light:
            better[light] = scores(negatives).max(-1) > batch_scores[light].max(-1)
        predictions += [
            Prediction(file, fitted, row, bool(inverted))
            for (file, fitted), row, inverted in zip(batch, batch_scores, better, strict=True)
        ]
    return predictions


def show(
    terminal: "Console", predictions: Sequence[Prediction], names: tuple[str, ...], top: int
) -> None:
    """Tables of a few images, a line for each of many, and which look inverted."""
    if len(predictions) <= TABLES:
        for prediction in predictions:
            terminal.print(_table(prediction, names, top))
    else:
        for prediction in predictions:
            said = (f"{names[i]} {prediction.scores[i]:.3f}" for i in prediction.best(top))
            line = f"{prediction.file}: {', '.join(said)}"
            terminal.print(line, markup=False, highlight=False, soft_wrap=True)
    if inverted := [str(p.file) for p in predictions if p.looks_inverted]:
        more = f" and {len(inverted) - TABLES} more" if len(inverted) > TABLES else ""
        terminal.print(
            f"Dark on light, and better recognised as a negative: {', '.join(inverted[:TABLES])}"
            f"{more}. Try --invert, or --crop, which decides it for each.",
            markup=False,
        )
    elif small := [p for p in predictions if _is_small(p)]:
        terminal.print(
            f"{len(small)} of {len(predictions)} show something small on an empty ground, such as "
            f"{small[0].file}. Try --crop.",
            markup=False,
        )


def _is_small(prediction: Prediction) -> bool:
    from _ink import extent

    pixels = prediction.fitted.pixels
    return pixels.shape[-1] == 1 and extent(pixels) < SMALL


def _table(prediction: Prediction, names: tuple[str, ...], top: int) -> "Table":
    from rich.table import Table

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
    path: Path,
    checkpoint: "Checkpoint",
    predictions: Sequence[Prediction],
    broken: dict[str, str],
    top: int,
) -> None:
    """Writes all results, in the format of the file's ending."""
    names = checkpoint.config.task.class_names
    if path.suffix == ".html":
        from _report.gallery import Shown, gallery

        classes: dict[str, list[Shown]] = {name: [] for name in names}
        for p in predictions:
            scores = [f"{names[i]} {p.scores[i]:.3f}" for i in p.best(top)]
            hint = ["looks inverted"] if p.looks_inverted else []
            shown = Shown(p.fitted.pixels, str(p.file), [p.file.name, *scores, *hint])
            classes[names[p.best(1)[0]]].append(shown)
        images = f"{len(predictions):,} {'image' if len(predictions) == 1 else 'images'}"
        title = f"{images}, {checkpoint.config.model.name}"
        present = {name: images for name, images in classes.items() if images}
        text = gallery(title, present, list(broken.values()))
    elif path.suffix == ".json":
        images = [
            {
                "file": str(p.file),
                "class": names[p.best(1)[0]],
                "scores": dict(zip(names, map(float, p.scores), strict=True)),
                "done": list(p.fitted.steps),
                "looks_inverted": p.looks_inverted,
            }
            for p in predictions
        ]
        about = {"model": checkpoint.config.model.name, "step": checkpoint.step}
        results = about | {"images": images, "not_read": broken}
        text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    else:
        buffer = io.StringIO()
        table = csv.writer(buffer, lineterminator="\n")
        table.writerow(["file", "class", "looks_inverted", "error", *map(_plain, names)])
        for p in predictions:
            scores = [f"{score:.6g}" for score in p.scores]
            best = _plain(names[p.best(1)[0]])
            table.writerow([_plain(str(p.file)), best, p.looks_inverted, "", *scores])
        for file, error in broken.items():
            table.writerow([_plain(file), "", "", _plain(error), *[""] * len(names)])
        text = buffer.getvalue()
    _cli.save(path, text)


def _plain(text: str) -> str:
    """Returns a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


if __name__ == "__main__":
    _cli.run(parser(), main)
