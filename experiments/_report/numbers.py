"""The sections of numbers: what was trained, how it went, how good it is."""

from collections.abc import Iterable
from html import escape

import ml_collections
import numpy as np

from _report import curves
from _report.html import counted, percent, section
from _report.results import Results
from capsjax.training.config import flatten
from capsjax.training.state import num_parameters, split

LONG_NAME = 4


def header(results: Results, versions: dict[str, str]) -> str:
    """What was trained, and how good it is."""
    checkpoint, dataset, summary = results.checkpoint, results.dataset, results.summary
    config = checkpoint.config
    low, high = summary.interval
    validation = results.history.validation_accuracy()
    held_out = ""
    if checkpoint.step in validation:
        held_out = f", validation accuracy {percent(validation[checkpoint.step])}"
    last = results.history.records[-1]
    _, params, _ = split(checkpoint.model)
    facts = {
        "Model": config.model.name,
        "Parameters": f"{num_parameters(params):,}",
        "Trained on": config.data.name,
        "Images": "×".join(map(str, config.task.input_shape)),
        "Checkpoint": f"step {checkpoint.step:,}{held_out}",
        "Epochs": f"{last['epoch']} of {config.training.epochs}",
        "Seed": str(config.seed),
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }
    listed = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    right, num = int(results.correct.sum()), len(dataset.labels)
    share = f"<strong>{percent(summary.accuracy)}</strong> {escape(dataset.split)} accuracy"
    interval = f"{100 * low:.1f} to {percent(high)}"
    return f"""<header>
<h1>{escape(config.model.name)} on {escape(dataset.name)}</h1>
<p class="accuracy">{share}</p>
<p>{right:,} of {num:,} images right; 95 % interval {interval}.</p>
<dl class="facts">{listed}</dl>
</header>"""


def learning(results: Results) -> str:
    """Loss and accuracy over the run."""
    step = results.checkpoint.step
    plots = curves.loss(results.history, step) + curves.accuracy(results.history, step)
    every = results.checkpoint.config.training.log_every_steps
    text = (
        f"Training values are means over {counted(every, 'step')}, on images as training "
        "draws them and while the network changes. "
    )
    if results.history.validation_accuracy():
        text += "Validation is measured after each epoch on images held out of the training split. "
    text += "The dotted line is the checkpoint shown on this page."
    return section(
        "learning",
        "Learning",
        text,
        f'<div class="plots">{plots}</div>',
    )


def confusion(results: Results) -> str:
    """Counts, true class by predicted."""
    names, counts = results.dataset.class_names, results.summary.confusion
    totals = np.maximum(counts.sum(-1, keepdims=True), 1)
    # Long names stand upright, so that the columns stay narrow.
    kind = ' class="long"' if max(map(len, names)) > LONG_NAME else ""
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name in names)
    rows = []
    for i, name in enumerate(names):
        cells = "".join(
            _confusion_cell(int(n), float(n / totals[i, 0]), i, j) for j, n in enumerate(counts[i])
        )
        share = percent(results.summary.per_class[i]) if counts[i].any() else "–"
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th>{cells}<td class="share">{share}</td></tr>'
        )
    return section(
        "confusion",
        "Confusion matrix",
        "Number of images by true class (rows) and predicted class (columns); on the right the "
        "fraction of each class that is correct.",
        f'<div class="scroll"><table class="confusion"><thead><tr><td></td>{head}'
        f'<th scope="col">right</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
        '<div id="cell" hidden></div>',
    )


def _confusion_cell(count: int, share: float, true: int, predicted: int) -> str:
    right = true == predicted
    if not count:
        return '<td class="none">0</td>' if right else "<td></td>"
    # By the square root, so that one mistake in a hundred is seen.
    return (
        f'<td class="{"right" if right else "wrong"}" style="--heat:{share**0.5:.2f}" '
        f'data-true="{true}" data-predicted="{predicted}">{count}</td>'
    )


def settings(config: ml_collections.ConfigDict) -> str:
    """The whole config."""
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(str(value))}</td></tr>'
        for key, value in flatten(config).items()
    )
    return section(
        "config",
        "Config",
        "Everything that the run depends on, as the checkpoint holds it.",
        '<details><summary>Show</summary><div class="scroll" tabindex="0"><table class="config">'
        f"<tbody>{rows}</tbody></table></div></details>",
    )


def commands(lines: Iterable[str], note: str) -> str:
    """How to get all this again; `note` is the last sentence above it."""
    return section(
        "commands",
        "Reproduce",
        f"In a clone of capsjax, with this page's versions. {note}",
        f'<pre class="scroll" tabindex="0">{escape(chr(10).join(lines))}</pre>',
    )
