"""Shows all networks, or the layers of one.

  python experiments/models.py
  python experiments/models.py --input=64x64x3 --classes=5
  python experiments/models.py gu2021_capsnet --input=28x28x1

Without --input and --classes each network is shown at its paper's, with the count of parameters
that the paper prints beside ours. Operations are XLA's count for the forward pass of one image, a
multiply-add as two; the body of a loop counts once, however often it runs. Nothing is computed, so
the largest network needs no memory.
"""

import argparse
import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import _cli
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from flax import nnx

    from capsjax.models import Network, Output


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show the layers of this network")
    parser.add_argument(
        "--input",
        type=_shape,
        metavar="HxWxC",
        help="height, width and channels of the images; default: the paper's",
    )
    parser.add_argument(
        "--classes", type=int, metavar="N", help="number of classes; default: the paper's"
    )
    return parser


def _shape(text: str) -> tuple[int, ...]:
    try:
        height, width, channels = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 28x28x1") from None
    return height, width, channels


def main(args: argparse.Namespace) -> None:
    """Prints the table."""
    terminal = _cli.table_console()
    show = partial(tables_of, args.name) if args.name else table_of_all
    for part in show(args.input, args.classes):
        terminal.print(part)


def outline(name: str, input_shape: tuple[int, int, int], num_classes: int) -> "nnx.Module":
    """Describes the network's structure; raises ValueError as `capsjax.models.create`."""
    from flax import nnx

    from capsjax import models

    return nnx.eval_shape(lambda: models.create(name, input_shape, num_classes, rngs=nnx.Rngs(0)))


class Described(NamedTuple):
    """What can be said of a network without computing anything."""

    model: "nnx.Module"
    output: "Output"
    layers: list[str]  # in the order in which they compute, which dicts lose in JAX
    operations: float


def describe(name: str, input_shape: tuple[int, int, int], num_classes: int) -> Described:
    """Describes the network's structure, the shapes of its output for one image, its operations."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    model = outline(name, input_shape, num_classes)
    model.eval()
    graphdef, state = nnx.split(model)
    images = jax.ShapeDtypeStruct((1, *input_shape), jnp.float32)
    layers: dict[str, None] = {}

    def forward(state, images):
        output = nnx.merge(graphdef, state)(images, capture=True)
        layers.update(dict.fromkeys([*output.features, *output.routed]))
        return output

    output = jax.eval_shape(forward, state, images)
    lowered = jax.jit(lambda *args: forward(*args)[:3]).lower(state, images)
    return Described(model, output, list(layers), lowered.cost_analysis()["flops"])


def count(model: "nnx.Module") -> int:
    """Returns the number of trainable parameters."""
    from capsjax.training.state import num_parameters, split

    return num_parameters(split(model)[1])


def table_of_all(
    input_shape: tuple[int, int, int] | None, num_classes: int | None
) -> Iterator[Table | str]:
    """Yields a table of all networks, and a line for each that cannot have this input."""
    from capsjax import models

    table = Table("network", "input")
    for title in ("classes", "parameters", "published"):
        table.add_column(title, justify="right")
    misfits = []
    for name in models.names():
        published = models.lookup(name)
        shape, classes = sizes(published, input_shape, num_classes)
        as_published = (shape, classes) == (published.input_shape, published.num_classes)
        try:
            table.add_row(
                name,
                _times(shape),
                str(classes),
                f"{count(outline(name, shape, classes)):,}",
                (as_published and published.parameters) or "–",
            )
        except ValueError as error:
            misfits.append(escape(f"{name}: {error}"))
    if table.row_count:
        yield _cli.whole_names(table)
    yield from misfits


def tables_of(
    name: str, input_shape: tuple[int, int, int] | None, num_classes: int | None
) -> Iterator[Table]:
    """Yields the parameters, the layers and the options of one network."""
    from capsjax import models

    with _cli.of_arguments():
        shape, classes = sizes(models.lookup(name), input_shape, num_classes)
        described = describe(name, shape, classes)
    operations = _operations(described.operations)
    yield _parameters(
        f"{name}: {_times(shape)}, {classes} classes, {operations} operations", described.model
    )
    yield _layers(described)
    options = Table("option", "default", title="options", title_justify="left")
    for key, value in models.options(name).items():
        options.add_row(key, escape(repr(value)))
    yield options


def sizes(
    published: "Network", input_shape: tuple[int, int, int] | None, num_classes: int | None
) -> tuple[tuple[int, int, int], int]:
    """Returns the sizes asked for, or the published ones."""
    return (
        published.input_shape if input_shape is None else input_shape,
        published.num_classes if num_classes is None else num_classes,
    )


def _parameters(title: str, model: "nnx.Module") -> Table:
    from flax import nnx

    layers: dict[str, dict[str, tuple[int, ...]]] = {}
    for path, parameter in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        *layer, own = map(str, path)
        layers.setdefault(".".join(layer) or "(the network)", {})[own] = parameter.shape
    table = Table("layer", "parameters", title=title, title_justify="left", show_footer=True)
    table.add_column("number", f"{count(model):,}", justify="right")
    for layer, own in layers.items():
        shapes = ", ".join(f"{name} {_times(shape)}" for name, shape in own.items())
        table.add_row(layer, shapes, f"{sum(map(math.prod, own.values())):,}")
    return table


def _layers(described: Described) -> Table:
    table = Table("made by", "shape", "couplings")
    table.title, table.title_justify = "what capture=True gives, for one image", "left"
    output = described.output
    for name in described.layers:
        coupling = ""
        if routed := output.routed.get(name):
            made, coupling = routed.poses, _times(routed.coupling.shape[1:])
        else:
            made = output.features[name]
        table.add_row(name, _times(made.shape[1:]), coupling)
    table.add_row(f"scores ({output.score_kind.value})", _times(output.scores.shape[1:]), "")
    if output.reconstruction is not None:
        table.add_row("reconstruction", _times(output.reconstruction.shape[1:]), "")
    return table


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _operations(number: float) -> str:
    return f"{number / 1e6:,.0f} M" if number >= 1e6 else f"{number:,.0f}"


if __name__ == "__main__":
    _cli.run(parser(), main)
