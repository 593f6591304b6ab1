"""Shows all networks, or the layers of one.

  python experiments/models.py
  python experiments/models.py --input=64x64x3 --classes=5
  python experiments/models.py gu2021_capsnet --input=28x28x1

Without --input and --classes each network has the input and the classes of its paper, whose count
of parameters is shown beside ours. Operations are XLA's count for one image; a loop counts once.
"""

import argparse
import math
from collections.abc import Iterator
from typing import Any

import _cli
from rich.markup import escape
from rich.table import Column, Table

import capsjax

Shape = tuple[int, ...]  # height, width and channels


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    option = parser.add_argument
    option("name", nargs="?", metavar="NAME", help="show the layers of this network")
    option("--input", type=size, metavar="HxWxC", help="image size; default: the paper's")
    option("--classes", type=int, metavar="N", help="number of classes; default: the paper's")
    return parser


def size(text: str) -> Shape:
    height, width, channels = map(int, text.split("x"))
    return height, width, channels


def main(args: argparse.Namespace) -> None:
    """Prints the tables."""
    terminal = _cli.table_console()
    shown = tables_of(args.name, args) if args.name else table_of_all(args)
    for part in shown:
        terminal.print(part)


def sizes(name: str, args: argparse.Namespace) -> tuple[Shape, int]:
    """Returns the image shape and the number of classes asked for, or the published ones."""
    published = capsjax.models.lookup(name)
    classes = published.num_classes if args.classes is None else args.classes
    return args.input or published.input_shape, classes


def outline(name: str, input_shape: Shape, num_classes: int) -> Any:
    """Describes the network's structure; raises ValueError as `capsjax.models.create`."""
    from flax import nnx

    return nnx.eval_shape(
        lambda: capsjax.models.create(name, input_shape, num_classes, rngs=nnx.Rngs(0))
    )


def describe(model: Any, input_shape: Shape) -> tuple[Any, float]:
    """Returns, of one image, the shapes of all that is captured, and the operations."""
    import jax
    from flax import nnx

    batches, (graphdef, state) = capsjax.evaluation.batches, nnx.split(model)
    forward = jax.jit(lambda state, image: batches.merged(graphdef, state)(image))
    image = jax.ShapeDtypeStruct((1, *input_shape), "float32")
    lowered = forward.lower(state, image)
    return batches.outline(model, input_shape), lowered.cost_analysis()["flops"]


def table_of_all(args: argparse.Namespace) -> Iterator[Table | str]:
    """Yields a table of all networks, and a line for each that cannot have this input."""
    heads = ("classes", "parameters", "published")
    table = Table("network", "input", *(Column(head, justify="right") for head in heads))
    misfits = []
    for name in capsjax.models.names():
        published, (shape, classes) = capsjax.models.lookup(name), sizes(name, args)
        as_published = (shape, classes) == (published.input_shape, published.num_classes)
        said = (as_published and published.parameters) or "–"
        try:
            number = capsjax.training.state.num_parameters(outline(name, shape, classes))
            table.add_row(name, _times(shape), str(classes), f"{number:,}", said)
        except ValueError as error:
            misfits.append(escape(f"{name}: {error}"))
    if table.row_count:
        yield _cli.whole_names(table)
    yield from misfits


def tables_of(name: str, args: argparse.Namespace) -> Iterator[Table]:
    """Yields the parameters, the layers and the options of one network."""
    shape, classes = sizes(name, args)
    model = outline(name, shape, classes)
    output, number = describe(model, shape)
    said = f"{number / 1e6:,.0f} M" if number >= 1e6 else f"{number:,.0f}"
    yield _parameters(f"{name}: {_times(shape)}, {classes} classes, {said} operations", model)
    yield _layers(output)
    options = Table("option", "default", title="options", title_justify="left")
    for key, value in capsjax.models.options(name).items():
        options.add_row(key, escape(repr(value)))
    yield options


def _parameters(title: str, model: Any) -> Table:
    from flax import nnx

    layers: dict[str, dict[str, Shape]] = {}
    for path, parameter in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        *layer, own = map(str, path)
        layers.setdefault(".".join(layer) or "(the network)", {})[own] = parameter.shape
    table = Table("layer", "parameters", title=title, title_justify="left", show_footer=True)
    number = capsjax.training.state.num_parameters(model)
    table.add_column("number", f"{number:,}", justify="right")
    for layer, own in layers.items():
        shapes = ", ".join(f"{name} {_times(shape)}" for name, shape in own.items())
        table.add_row(layer, shapes, f"{sum(map(math.prod, own.values())):,}")
    return table


def _layers(output: Any) -> Table:
    table = Table("made by", "shape", "couplings")
    table.title, table.title_justify = "what capture=True gives, for one image", "left"
    for name in dict.fromkeys([*output.features, *output.routed]):
        routed = output.routed.get(name)
        made = routed.poses if routed else output.features[name]
        coupling = _times(routed.coupling.shape[1:]) if routed else ""
        table.add_row(name, _times(made.shape[1:]), coupling)
    table.add_row(f"scores ({output.score_kind.value})", _times(output.scores.shape[1:]), "")
    if output.reconstruction is not None:
        table.add_row("reconstruction", _times(output.reconstruction.shape[1:]), "")
    return table


def _times(shape: Shape) -> str:
    return "×".join(map(str, shape))


if __name__ == "__main__":
    _cli.run(parser(), main)
