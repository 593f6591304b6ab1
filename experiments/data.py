"""Shows a task or data set: a summary, a sheet of images, or a file for other programs.

  python experiments/data.py cifar10                            # how many images of which classes
  python experiments/data.py folder:flowers --out=flowers.png   # what is in a folder of yours
  python experiments/data.py multimnist --out=multimnist.png
  python experiments/data.py affnist_generated --option=max_shear=1 --option=keep_ink=false \\
      --export=affnist.npz --count=10000

NAME is a generated task or any data set. Without --out and --export it prints a summary: for a
folder of image files, the classes, the sizes, and the files that would not be read. The exported
file holds `images`, `labels`, `class_names`, and how each image was made, such as its source, its
shift and its rotation.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _cli
import matplotlib
import numpy as np
from etils import epath
from PIL import Image, ImageDraw, ImageFont
from rich.markup import escape
from rich.table import Table

import capsjax
from capsjax import _files, runs

COLUMNS, ROWS = 10, 6
MARGIN = 4
CAPTION = 12
CELL = 80  # images are enlarged to about this many pixels
MOST = 10  # files that are named


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    option = parser.add_argument
    option("name", metavar="NAME", help="a task or a data set")
    option("--out", type=_cli.file(".png"), metavar="FILE.png", help="draw a sheet")
    option("--export", type=_cli.file(".npz"), metavar="FILE.npz", help="write images")
    text = "how many images to export, spread over all sources"
    option("--count", type=int, default=1000, metavar="N", help=text)
    text = "train, validation or a test set; default: test, or validation where there is none"
    option("--set", metavar="NAME", help=text)
    text = "an option of the task, as in config.data; may be repeated"
    option("--option", action="append", default=[], metavar="KEY=VALUE", help=text)
    _cli.add(parser, "--data_dir", "--device_budget_mb")
    return parser


def main(args: argparse.Namespace) -> None:
    """Draws and exports."""
    chosen, of_files = options(args.name, args.option), args.name.startswith("folder:")
    if of_files:
        differ = survey(args.name)
        if not args.out and not args.export:
            return  # the images may be of several sizes
        if differ and not chosen and not args.export:
            chosen = {"size": CELL, "channels": 3}  # to draw them all the same
    task = capsjax.data.tasks.create(
        args.name, data_dir=args.data_dir, device_budget_mb=args.device_budget_mb, **chosen
    )
    if not of_files:
        print(outline(task))
    if not args.out and not args.export:
        return
    chosen_set = args.set or ("test" if "test" in task.tests else "validation")
    if chosen_set != (args.set or "test"):
        print(f"{args.name} has no test set: this is its validation set.")
    examples = task.evaluation_set(chosen_set)
    if not len(examples):
        raise ValueError(f"{args.name}: the set {chosen_set!r} is empty")
    if args.out:
        picture = sheet(task, examples)
        with _files.replacing(args.out) as file:
            picture.save(file, "PNG")
        print(f"Written to {args.out}: {args.name}, {chosen_set}.")
    if args.export:
        count = export(args.export, task, examples, args.count)
        print(f"Written to {args.export}: {count:,} of {len(examples):,} images.")


def outline(task: "capsjax.data.tasks.Task") -> str:
    """Says what images a task has."""
    sets = [f"{name} {len(task.evaluation_set(name)):,}" for name in ("validation", *task.tests)]
    shape, classes = "×".join(map(str, task.input_shape)), ", ".join(task.class_names)
    return (
        f"{task.name}: images of {shape}; {len(task.train.labels):,} to train on. "
        f"Sets: {', '.join(sets)}. Classes: {classes}."
    )


def survey(name: str) -> bool:
    """Prints what is in the folder `name`; returns whether the sizes of its images differ."""
    folder = capsjax.data.folder.Folder(Path(os.path.expanduser(name.partition(":")[2])))
    contents, terminal = folder.survey(), runs.display.console()
    table = Table("class", show_footer=True)
    for split, counts in contents.counts.items():
        table.add_column(split, f"{sum(counts.values()):,}", justify="right")
    for label in folder.class_names:
        numbers = (f"{counts[label]:,}" for counts in contents.counts.values())
        table.add_row(escape(label), *numbers)
    terminal.print(_cli.whole_names(table))
    if contents.sizes:
        heights, widths, channels = map(_range, zip(*contents.sizes, strict=True))
        terminal.print(f"Height {heights}, width {widths}, channels {channels}.")
    if len(contents.sizes) > 1:
        terminal.print(
            "They differ: train with --config.data.size=32 --config.data.channels=3, or other "
            "numbers. To see the result here, add --option=size=32 --option=channels=3."
        )
    for what, lines in (
        ("Cannot be read, skipped", contents.broken),
        ("Not images, ignored", [str(path) for path in contents.strays]),
    ):
        if lines:
            more = [f"and {len(lines) - MOST} more"] if len(lines) > MOST else []
            number = "1 file" if len(lines) == 1 else f"{len(lines)} files"
            terminal.print("\n  ".join([f"{what}: {number}", *lines[:MOST], *more]), markup=False)
    return len(contents.sizes) > 1


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def options(name: str, texts: list[str]) -> dict[str, Any]:
    """Returns the KEY=VALUE pairs of the command line, read as values of a config."""
    parse, defaults = capsjax.training.config.parse_value, capsjax.data.tasks.options(name)
    pairs = (text.partition("=")[::2] for text in texts)
    return {key: parse(value, defaults.get(key)) for key, value in pairs}


def _spread(examples: Any, count: int) -> Any:
    """Renders up to `count` of the examples, from the whole set."""
    return capsjax.data.tasks.render(examples, capsjax.data.tasks.spread(examples, count))


def sheet(task: Any, examples: Any) -> Image.Image:
    """Draws examples from the whole set, each with its classes below."""
    rendered = _spread(examples, COLUMNS * ROWS)
    height, width, channels = task.input_shape
    if channels not in (1, 3):
        raise ValueError(f"{task.name}: images of {channels} channels cannot be drawn")
    factor = max(1, round(CELL / max(height, width)))
    across, down = factor * width + MARGIN, factor * height + CAPTION + MARGIN
    rows = -(-len(rendered.images) // COLUMNS)
    page = Image.new("RGB", (COLUMNS * across + MARGIN, rows * down + MARGIN), "white")
    font = ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", 10)
    for i, (image, label) in enumerate(zip(rendered.images, rendered.labels, strict=True)):
        x, y = MARGIN + i % COLUMNS * across, MARGIN + i // COLUMNS * down
        enlarged = np.broadcast_to(image, (height, width, 3)).repeat(factor, 0).repeat(factor, 1)
        page.paste(Image.fromarray(enlarged), (x, y))
        present = ", ".join(task.class_names[k] for k in np.flatnonzero(label))
        caption = Image.new("RGB", (factor * width, CAPTION), "white")  # which cuts it off
        ImageDraw.Draw(caption).text((0, 0), present, fill="black", font=font)
        page.paste(caption, (x, y + factor * height))
    return page


def export(path: epath.Path, task: Any, examples: Any, count: int) -> int:
    """Writes up to `count` examples; returns how many."""
    rendered = _spread(examples, count)
    labels = rendered.labels.astype(np.int32)
    with _files.replacing(path) as archive:
        np.savez_compressed(
            archive,
            images=rendered.images,
            labels=labels if task.multi_label else labels.argmax(-1).astype(np.int32),
            class_names=np.array(task.class_names),
            **rendered.parameters,
        )
    return len(rendered.images)


if __name__ == "__main__":
    _cli.run(parser(), main)
