"""Packs a trained network into one file to share, with a card that describes it.

  python experiments/release.py --checkpoint=runs/demo --output=releases/digits_capsnet.safetensors

The network is evaluated first; the card, in Markdown beside the file, has its size, data, recipe,
accuracy with interval, commit and licence. Every script takes such a file for --checkpoint, and so
does capsjax.restore, from a path or an address.
"""

import argparse
import json
from html import escape
from pathlib import Path

import _cli
from _provenance import commit, versions
from _scoring import score

import capsjax
from capsjax import _files, runs, training

CARD = Path(__file__).with_name("release_card.md")


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    _cli.add(parser, "--checkpoint", "--which", *_cli.DATA)
    option = parser.add_argument
    text = "the new file; its card is FILE.md"
    kind = _cli.file(".safetensors")
    option("--output", required=True, type=kind, metavar="FILE.safetensors", help=text)
    text = "licence of the parameters, for the card"
    option("--licence", default="not stated", metavar="NAME", help=text)
    text = "leave the decoder out, which often holds most of the parameters"
    option("--without_decoder", action="store_true", help=text)
    return parser


def main(args: argparse.Namespace) -> None:
    """Evaluates, then writes both files."""
    file, card = args.output, args.output.with_suffix(".md")
    for path in (file, card):
        if path.exists():
            raise ValueError(f"{path} is there already: remove it, or choose another name")
    runs.process.cache_programs()
    checkpoint = runs.checkpoints.read(args.checkpoint, args.which)
    # Without what follows from the data: shape and names.
    recipe = {key: value for key, value in checkpoint.config.to_dict().items() if key != "task"}
    if args.without_decoder:
        checkpoint = _without_decoder(checkpoint)
    data, scores, summary = score(checkpoint, args)
    about = runs.about.About(checkpoint.config, checkpoint.history, {}).to_json()
    runs.release.write(file, checkpoint.model, about | {"step": checkpoint.step})
    config = checkpoint.config
    text = CARD.read_text(encoding="utf-8").format(
        file=file,
        config=config,
        data=data,
        parameters=training.state.num_parameters(checkpoint.model),
        trained_on=_cell(config.data.name),
        evaluated=_cell(data.name),
        shape=config.task.input_shape,
        classes=_cell(", ".join(config.task.class_names)),
        percent=[100 * share for share in (summary.accuracy, *summary.interval)],
        images=len(scores),
        step=checkpoint.step,
        size=file.stat().length,
        commit=commit(),
        used=versions(),
        licence=_cell(args.licence),
        averaged="; the mean of its latest checkpoints" if args.which == "mean" else "",
        left_out=", with a decoder that is left out here" if args.without_decoder else "",
        recipe=json.dumps(recipe, indent=2, ensure_ascii=False),
    )
    _files.write_atomically(card, text)
    runs.display.say(
        f"Written to {file} ({file.stat().length:,} bytes), with its card {card}: "
        f"{100 * summary.accuracy:.2f} % of {len(scores):,} images."
    )


def _without_decoder(checkpoint: "runs.checkpoints.Checkpoint") -> "runs.checkpoints.Checkpoint":
    """Rebuilds the network with model.reconstruction "none"."""
    from flax import nnx

    config = checkpoint.config.copy_and_resolve_references()
    if "reconstruction" not in config.model:
        raise ValueError(f"--without_decoder: {config.model.name} cannot be built without one")
    config.model.reconstruction = "none"
    paths = capsjax.models.paths
    graphdef, state = nnx.split(training.build.abstract_model(config))
    state = paths.replaced(state, paths.by_path(nnx.state(checkpoint.model)))
    return checkpoint._replace(model=nnx.merge(graphdef, state), config=config)


def _cell(text: str) -> str:
    """Returns plain text for a cell of a table in Markdown."""
    return " ".join(escape(text, quote=False).replace("|", "\\|").split())


if __name__ == "__main__":
    _cli.run(parser(), main)
