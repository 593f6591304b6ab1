"""Writes a trained network as one file to hand out, and a card that says what it is.

  python experiments/release.py --checkpoint=runs/demo --output=releases/digits_capsnet.safetensors

The network is evaluated first, on the test images of its data set or those asked for; the card,
in Markdown beside the file, has its size, data, recipe, accuracy with interval, commit and licence.
Every script takes such a file for --checkpoint, and so does capsjax.restore, from a path or from
an address. Any other program reads the parameters with the safetensors package.
"""

import argparse
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import _cli

if TYPE_CHECKING:
    from capsjax.evaluation.scoring import EvaluationData
    from capsjax.evaluation.summaries import MultiLabelSummary, Summary
    from capsjax.runs.checkpoints import Checkpoint

CARD = """# {title}

{model}, {parameters:,} parameters, trained with capsjax on {data}.

| | |
| --- | --- |
| input | {height}×{width}×{channels}, uint8 |
| classes | {classes} |
| accuracy | {accuracy:.2f} % of {images:,} images of {evaluated}, split {split} |
| its 95 % interval | {low:.2f} to {high:.2f} % |
| training | {step:,} steps, seed {seed} |
| file | {size:,} bytes, sha256 of the tensors and the config inside |
| made with | capsjax {capsjax}, commit {commit}, jax {jax}, flax {flax} |
| licence | {licence} |

```python
import capsjax

model, config = capsjax.restore("{file}")
scores = model(images).scores  # uint8 images [n, {height}, {width}, {channels}]
```

## Recipe

```json
{recipe}
```
"""


def parser() -> argparse.ArgumentParser:
    """Declares the command line."""
    parser = _cli.parser(__doc__)
    _cli.add(parser, "--checkpoint", "--which", *_cli.DATA)
    parser.add_argument(
        "--output",
        required=True,
        type=_output,
        metavar="FILE.safetensors",
        help="the new file; its card is FILE.md",
    )
    parser.add_argument(
        "--licence",
        default="Apache-2.0",
        metavar="NAME",
        help="of the parameters, as the card says it; default: Apache-2.0",
    )
    parser.add_argument(
        "--without_decoder",
        action="store_true",
        help="leave the decoder out, which often holds most of the parameters",
    )
    return parser


def _output(text: str) -> Path:
    from capsjax.runs.release import SUFFIX

    path = Path(text)
    if path.suffix != SUFFIX:
        raise argparse.ArgumentTypeError(f"must end in {SUFFIX}, got {text}")
    if there := [file for file in (path, path.with_suffix(".md")) if file.exists()]:
        raise argparse.ArgumentTypeError(
            f"{there[0]} is there already: remove it, or choose another name"
        )
    return path


def main(args: argparse.Namespace) -> None:
    """Evaluates, then writes both files."""
    import evaluate

    from capsjax.runs import checkpoints, release
    from capsjax.runs.display import console
    from capsjax.runs.process import cache_programs
    from capsjax.training import config as configs

    cache_programs()
    terminal = console()
    checkpoint = checkpoints.read(args.checkpoint, args.which)
    if args.without_decoder:
        checkpoint = _without_decoder(checkpoint)
    data, scores = evaluate.score(checkpoint, args, terminal)
    summary = evaluate.summarize(checkpoint.model, data, scores)
    about = {
        "config": configs.to_json(checkpoint.config),
        "history": checkpoint.history.to_json(),
        "step": checkpoint.step,
    }
    release.write(args.output, checkpoint.model, about)
    text = card(args.output, checkpoint, data, summary, args.licence)
    _cli.save(args.output.with_suffix(".md"), text)
    terminal.print(
        f"Written to {args.output} ({args.output.stat().st_size:,} bytes), with its card "
        f"{args.output.with_suffix('.md')}: {100 * summary.accuracy:.2f} % of {len(scores):,} "
        f"images.",
        markup=False,
    )


def _without_decoder(checkpoint: "Checkpoint") -> "Checkpoint":
    """Rebuilds the network with model.reconstruction "none"."""
    from flax import nnx

    from capsjax.models import paths
    from capsjax.training.build import abstract_model

    config = checkpoint.config.copy_and_resolve_references()
    if "reconstruction" not in config.model:
        raise ValueError(f"--without_decoder: {config.model.name} has no decoder")
    with config.unlocked():
        config.model.reconstruction = "none"
    graphdef, state = nnx.split(abstract_model(config))
    state = paths.replaced(state, paths.by_path(nnx.state(checkpoint.model)))
    return checkpoint._replace(model=nnx.merge(graphdef, state), config=config)


def card(
    file: Path,
    checkpoint: "Checkpoint",
    data: "EvaluationData",
    summary: "Summary | MultiLabelSummary",
    licence: str,
) -> str:
    """Writes what a reader needs to know of a released network, in Markdown."""
    from _provenance import commit, versions

    from capsjax.training.state import num_parameters, split

    config = checkpoint.config
    height, width, channels = config.task.input_shape
    low, high = summary.interval
    # Without what follows from the data: shape and names.
    recipe = {key: value for key, value in config.to_dict().items() if key != "task"}
    return CARD.format(
        title=file.stem,
        model=f"`{config.model.name}`",
        parameters=num_parameters(split(checkpoint.model)[1]),
        data=f"`{_cell(config.data.name)}`",
        height=height,
        width=width,
        channels=channels,
        classes=_cell(", ".join(config.task.class_names)),
        accuracy=100 * summary.accuracy,
        low=100 * low,
        high=100 * high,
        images=len(data.examples),
        evaluated=f"`{_cell(data.name)}`",
        split=data.split,
        step=checkpoint.step,
        seed=config.seed,
        size=file.stat().st_size,
        commit=commit(),
        licence=_cell(licence),
        file=file.name,
        recipe=json.dumps(recipe, indent=2, ensure_ascii=False),
        **{name: versions()[name] for name in ("capsjax", "jax", "flax")},
    )


def _cell(text: str) -> str:
    """Returns plain text for a cell of a table in Markdown."""
    return " ".join(escape(text, quote=False).replace("|", "\\|").split())


if __name__ == "__main__":
    _cli.run(parser(), main)
