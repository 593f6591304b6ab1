"""Classifies image files with a trained network, or writes the network as a file of its own.

  python experiments/predict.py --checkpoint=runs/mnist --image=seven.png three.jpg
  python experiments/predict.py --checkpoint=runs/mnist --export=capsnet.jaxexport

Images are made grey or coloured and scaled as the network needs, keeping their proportions, and
what was done is said. Digits of MNIST are light on dark: for ink on paper, add --invert. The
exported file holds the parameters and needs JAX alone, see docs/evaluation.md.
"""

import argparse
from typing import TYPE_CHECKING

import _cli
from etils import epath
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import numpy as np

BAR_WIDTH = 20


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="--workdir of experiments/train.py"
    )
    _cli.add_which(parser)
    parser.add_argument(
        "--image", nargs="+", type=epath.Path, default=[], metavar="FILE", help="images to classify"
    )
    parser.add_argument(
        "--invert", action="store_true", help="turn images into their negatives first"
    )
    parser.add_argument(
        "--top", type=int, default=3, metavar="N", help="classes to show per image; default: 3"
    )
    parser.add_argument(
        "--export", type=epath.Path, metavar="FILE", help="write the network with jax.export"
    )
    return parser


def main(args: argparse.Namespace) -> None:
    """Classifies and exports."""
    if not args.image and not args.export:
        raise _cli.UsageError(
            "nothing to do: give --image=FILE to classify or --export=FILE to write"
        )
    if args.top < 1:
        raise ValueError(f"--top must be at least 1, got {args.top}")
    import jax
    import numpy as np
    from flax import nnx

    from capsjax.data import read_image
    from capsjax.evaluation import export
    from capsjax.training import checkpoints
    from capsjax.training.display import console
    from capsjax.training.setup import cache_programs

    cache_programs()
    terminal = console()
    checkpoint = checkpoints.read(args.checkpoint, args.which)
    task = checkpoint.config.task
    if args.image:
        fitted = [fit(read_image(f), task.input_shape, invert=args.invert) for f in args.image]
        images = np.stack([image for image, _ in fitted])
        scores = nnx.jit(lambda model, x: model(x).scores)(checkpoint.model, images)
        for file, (_, steps), row in zip(args.image, fitted, np.asarray(scores), strict=True):
            terminal.print(_table(f"{file} ({steps})", row, task.class_names, args.top))
    if args.export:
        args.export.parent.mkdir(parents=True, exist_ok=True)
        args.export.write_bytes(export.export_scores(checkpoint.model, task.input_shape))
        terminal.print(
            f"Written to {args.export}, for {', '.join(export.PLATFORMS)}; jax {jax.__version__}.",
            markup=False,
        )


def fit(
    image: "np.ndarray", shape: tuple[int, int, int], *, invert: bool
) -> tuple["np.ndarray", str]:
    """A uint8 image [h, w, 1 or 3] as the network takes it, and in words what was done.

    Proportions are kept: missing areas at two sides are black, as in shifted training images.

    Raises:
      ValueError: the network takes neither grey nor colour images.
    """
    import numpy as np
    from PIL import Image, ImageOps

    height, width, channels = shape
    if channels not in (1, 3):
        raise ValueError(
            f"the network takes images of {channels} channels; files give 1 (grey) or 3 (colour)"
        )
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    mode, steps = ("L", "grey") if channels == 1 else ("RGB", "RGB"), []
    if picture.mode != mode[0]:
        picture = picture.convert(mode[0])
        steps.append(f"made {mode[1]}")
    if invert:
        picture = ImageOps.invert(picture)
        steps.append("inverted")
    if picture.size != (width, height):
        before = picture.size
        inside = ImageOps.contain(picture, (width, height))
        picture = ImageOps.pad(picture, (width, height))
        steps.append(f"{before[0]}×{before[1]} scaled to {inside.width}×{inside.height}")
        if inside.size != (width, height):
            steps.append(f"padded to {width}×{height}")
    return np.asarray(picture).reshape(shape), ", ".join(steps) or "as it is"


def _table(title: str, scores: "np.ndarray", names: tuple[str, ...], top: int) -> Table:
    table = Table("class", title=escape(title), title_justify="left")
    table.add_column("score", justify="right")
    table.add_column("", min_width=BAR_WIDTH)
    for i in (-scores).argsort(kind="stable")[:top]:
        bar = "█" * round(BAR_WIDTH * min(max(float(scores[i]), 0.0), 1.0))
        table.add_row(escape(names[i]), f"{scores[i]:.3f}", bar)
    return table


if __name__ == "__main__":
    _cli.run(parser(), main)
