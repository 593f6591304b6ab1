"""The page, section by section; each function gives HTML."""

from collections.abc import Callable, Iterable
from html import escape
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import Float

from _report import curves
from _report.pictures import png, strip
from capsjax.analysis.perturbation import perturb, symmetric_offsets
from capsjax.data import Dataset
from capsjax.models import Output
from capsjax.training.checkpoints import Checkpoint
from capsjax.training.config import flatten
from capsjax.training.evaluation import Summary
from capsjax.training.metrics import History
from capsjax.training.state import num_parameters, split

# Enough to see what the network does; a page of a set with a hundred classes stays small too.
MAX_CLASSES = 20
IMAGES_PER_CLASS = 6
PERTURBED_IMAGES = 4
MAX_MISTAKES = 12
MAX_BARS = 10


class Results(NamedTuple):
    """What the page tells of.

    Attributes:
      checkpoint: the network.
      history: of the whole run, which may be longer than the checkpoint's.
      dataset: the split it was evaluated on.
      scores: of every image of `dataset`.
      summary: of these scores.
    """

    checkpoint: Checkpoint
    history: History
    dataset: Dataset
    scores: Float[np.ndarray, "n classes"]
    summary: Summary

    @property
    def predicted(self) -> np.ndarray:
        return self.scores.argmax(-1)

    @property
    def right(self) -> np.ndarray:
        return self.predicted == self.dataset.labels


def header(results: Results, versions: dict[str, str]) -> str:
    """What was trained, and how good it is."""
    checkpoint, dataset, summary = results.checkpoint, results.dataset, results.summary
    config = checkpoint.config
    low, high = summary.interval
    validation = results.history.validation_accuracy()
    held_out = ""
    if checkpoint.step in validation:
        held_out = f", validation accuracy {_percent(validation[checkpoint.step])}"
    last = results.history.records[-1]
    _, params, _ = split(checkpoint.model)
    facts = {
        "Model": config.model.name,
        "Parameters": f"{num_parameters(params):,}",
        "Trained on": config.data.name,
        "Images": "×".join(map(str, config.task.input_shape)),
        "Checkpoint": f"step {checkpoint.step:,} of {last['step']:,}{held_out}",
        "Epochs": f"{last['epoch']} of {config.training.epochs}",
        "Seed": str(config.seed),
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }
    listed = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    right, num = int(results.right.sum()), len(dataset.labels)
    share = f"<strong>{_percent(summary.accuracy)}</strong> {escape(dataset.split)} accuracy"
    interval = f"{100 * low:.1f} to {_percent(high)}"
    return f"""<header>
<h1>{escape(config.model.name)} on {escape(dataset.name)}</h1>
<p class="accuracy">{share}</p>
<p>{right:,} of {num:,} images right; 95 % interval {interval}.</p>
<dl class="facts">{listed}</dl>
</header>"""


def learning(results: Results) -> str:
    """Loss and accuracy over the run."""
    step = results.checkpoint.step
    plots = [curves.loss(results.history, step), curves.accuracy(results.history, step)]
    pictures = "".join(
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{plot.dark}">'
        f'<img src="{plot.light}" alt="{escape(plot.alt)}"></picture>'
        for plot in plots
    )
    every = results.checkpoint.config.training.log_every_steps
    return _section(
        "learning",
        "Learning",
        f"Training values are means over {every} steps, on shifted images and while the network "
        "changes; validation is measured after each epoch on images held out of the training "
        "split. The dotted line is the checkpoint shown on this page.",
        f'<div class="plots">{pictures}</div>',
    )


def confusion(results: Results) -> str:
    """Counts, true class by predicted."""
    names, counts = results.dataset.class_names, results.summary.confusion
    totals = np.maximum(counts.sum(-1, keepdims=True), 1)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    rows = []
    for i, name in enumerate(names):
        cells = "".join(
            _confusion_cell(int(n), float(n / totals[i, 0]), i == j)
            for j, n in enumerate(counts[i])
        )
        share = _percent(results.summary.per_class[i]) if counts[i].any() else "–"
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th>{cells}<td class="share">{share}</td></tr>'
        )
    return _section(
        "confusion",
        "Confusion matrix",
        "Number of images by true class (rows) and predicted class (columns); on the right the "
        "share of each class that is right.",
        f'<div class="scroll"><table class="confusion"><thead><tr><td></td>{head}'
        f'<th scope="col">right</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>',
    )


class Examples(NamedTuple):
    """The first images of each class and what the network says of them.

    Attributes:
      by_class: label → places in the data set.
      output: of the network, in the same order.
    """

    by_class: dict[int, list[int]]
    output: Output


def examples(results: Results) -> Examples:
    """One run of the network for both sections that show reconstructions."""
    labels = results.dataset.labels
    by_class = {
        int(label): np.flatnonzero(labels == label)[:IMAGES_PER_CLASS].tolist()
        for label in np.unique(labels)[:MAX_CLASSES]
    }
    images = results.dataset.images[list(chain.from_iterable(by_class.values()))]
    output = nnx.jit(lambda model, images: model(images))(results.checkpoint.model, images)
    return Examples(by_class, output)


def reconstructions(results: Results, examples: Examples) -> str:
    """Inputs beside what the decoder makes of their class capsule."""
    title, dataset = "Reconstructions", results.dataset
    if examples.output.reconstruction is None:
        return _section("reconstructions", title, "This network has no decoder.")
    decoded = iter(np.asarray(examples.output.reconstruction))
    rows = []
    for label, places in examples.by_class.items():
        pairs = "".join(_pair(results, i, next(decoded)) for i in places)
        name = escape(dataset.class_names[label])
        rows.append(f'<tr><th scope="row">{name}</th><td>{pairs}</td></tr>')
    text = (
        f"The first images of each class in the {dataset.split} split, and to the right of each "
        "what the decoder makes of the class capsule with the highest score alone. An arrow names "
        "that class where it is wrong."
    )
    left_out = len(np.unique(dataset.labels)) - len(examples.by_class)
    if left_out:
        text += f" {left_out} more classes are not shown."
    body = f'<table class="pairs"><tbody>{"".join(rows)}</tbody></table>'
    return _section("reconstructions", title, text, body)


def poses(results: Results, examples: Examples) -> str:
    """Each element of the class capsule's pose moved (Sabour et al. 2017, figure 4)."""
    title, dataset, output = "What the pose elements mean", results.dataset, examples.output
    if output.poses is None or output.reconstruction is None:
        lacks = "class poses" if output.poses is None else "decoder"
        return _section("poses", title, f"This network has no {lacks}.")
    # Of each class the first that is classified right: its pose is that of its true class.
    pose_of = dict(zip(chain.from_iterable(examples.by_class.values()), output.poses, strict=True))
    firsts = [next((i for i in p if results.right[i]), None) for p in examples.by_class.values()]
    known = [i for i in firsts if i is not None]
    if not known:
        return _section("poses", title, "None of the images above is classified right.")
    spread = np.linspace(0, len(known) - 1, min(PERTURBED_IMAGES, len(known))).round().astype(int)
    offsets = symmetric_offsets()
    model: Any = results.checkpoint.model  # which modules it has differs
    figures = []
    for index in (known[k] for k in spread):
        label = int(dataset.labels[index])
        moved = decode_moved(model.decoder, pose_of[index], label, offsets)
        figures.append(
            _perturbed(dataset.images[index], dataset.class_names[label], moved, offsets)
        )
    return _section(
        "poses",
        title,
        "Each row moves one element of the class capsule's pose from "
        f"{_signed(offsets[0])} to {_signed(offsets[-1])} in steps of "
        f"{offsets[1] - offsets[0]:.2f} and decodes the result; the middle column is the "
        "unchanged reconstruction.",
        f'<div class="perturbed">{"".join(figures)}</div>',
    )


def decode_moved(
    decoder: Callable[[jax.Array, jax.Array], jax.Array],
    image_poses: Float[jax.Array, "classes d"],
    label: int,
    offsets: Float[np.ndarray, "k"],
) -> Float[np.ndarray, "d k h w c"]:
    """Reconstructions of one image, every element of the pose of class `label` moved."""
    num_classes, d = image_poses.shape
    moved = perturb(image_poses[label], offsets).reshape(-1, 1, d)
    # The decoder sees the masked class alone, so the others may hold the same pose.
    everywhere = jnp.broadcast_to(moved, (len(moved), num_classes, d))
    mask = jnp.broadcast_to(jax.nn.one_hot(label, num_classes), (len(moved), num_classes))
    images = np.asarray(decoder(everywhere, mask))
    return images.reshape(d, len(offsets), *images.shape[1:])


def mistakes(results: Results) -> str:
    """The surest wrong answers."""
    title = "Worst mistakes"
    wrong = np.flatnonzero(~results.right)
    if not len(wrong):
        return _section("mistakes", title, "There are none: every image is classified right.")
    rows = np.arange(len(results.scores))
    lead = results.scores.max(-1) - results.scores[rows, results.dataset.labels]
    worst = wrong[np.argsort(-lead[wrong], kind="stable")][:MAX_MISTAKES]
    scale = max(1.0, float(results.scores[worst].max()))
    cards = "".join(_mistake(results, int(i), scale) for i in worst)
    return _section(
        "mistakes",
        title,
        f"{len(worst)} of {len(wrong):,} wrong answers, those first in which the wrong class leads "
        "most. The bars are the class scores (for a CapsNet, the lengths of the class capsules): "
        "blue the true class, orange the predicted one.",
        f'<div class="mistakes">{cards}</div>',
    )


def settings(config: ml_collections.ConfigDict) -> str:
    """The whole config."""
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(str(value))}</td></tr>'
        for key, value in flatten(config).items()
    )
    return _section(
        "config",
        "Config",
        "Everything that the run depends on, as the checkpoint holds it.",
        f'<details><summary>Show</summary><div class="scroll"><table class="config"><tbody>{rows}'
        "</tbody></table></div></details>",
    )


def commands(lines: Iterable[str]) -> str:
    """How to get all this again."""
    return _section(
        "commands",
        "Reproduce",
        "In a clone of capsjax, with this page's versions. A finished run is only evaluated; to "
        "train anew, give another directory.",
        f'<pre class="scroll">{escape(chr(10).join(lines))}</pre>',
    )


def _section(name: str, title: str, text: str, body: str = "") -> str:
    return f'<section id="{name}"><h2>{title}</h2><p>{escape(text)}</p>{body}</section>'


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(offset: float) -> str:
    # A true minus sign; and no sign on what rounds to zero.
    return f"{offset:+.2f}".replace("-", "−") if round(offset, 2) else "0"


def _confusion_cell(count: int, share: float, right: bool) -> str:
    if not count:
        return '<td class="none">0</td>' if right else "<td></td>"
    # By the square root, so that one mistake in a hundred is seen.
    return (
        f'<td class="{"right" if right else "wrong"}" style="--heat:{share**0.5:.2f}">{count}</td>'
    )


def _pair(results: Results, index: int, reconstruction: Float[np.ndarray, "h w c"]) -> str:
    names, image = results.dataset.class_names, results.dataset.images[index]
    true, predicted = (names[k] for k in (results.dataset.labels[index], results.predicted[index]))
    arrow = "" if results.right[index] else f"<figcaption>→ {escape(predicted)}</figcaption>"
    return (
        '<figure class="pair">'
        f'<img src="{png(image)}" alt="{escape(f"Image {index}, class {true}")}">'
        f'<img src="{png(reconstruction)}" '
        f'alt="{escape(f"Its reconstruction from the capsule of class {predicted}")}">'
        f"{arrow}</figure>"
    )


def _perturbed(
    image: np.ndarray,
    name: str,
    moved: Float[np.ndarray, "d k h w c"],
    offsets: Float[np.ndarray, "k"],
) -> str:
    ends = f"{_signed(offsets[0])} to {_signed(offsets[-1])}"
    rows = "".join(
        f'<tr><th scope="row">{e}</th><td><img src="{strip(row)}" '
        f'alt="{escape(f"Class {name}, element {e} moved from {ends}")}"></td></tr>'
        for e, row in enumerate(moved)
    )
    return (
        f'<figure><figcaption><img src="{png(image)}" alt="{escape(f"An image of class {name}")}">'
        f'Class {escape(name)}</figcaption><table><thead><tr><td></td><th><div class="ends">'
        f"<span>{_signed(offsets[0])}</span><span>0</span><span>{_signed(offsets[-1])}</span></div>"
        f"</th></tr></thead><tbody>{rows}</tbody></table></figure>"
    )


def _mistake(results: Results, index: int, scale: float) -> str:
    names, scores = results.dataset.class_names, results.scores[index]
    true, predicted = int(results.dataset.labels[index]), int(results.predicted[index])
    shown = np.argsort(-scores, kind="stable")[:MAX_BARS].tolist()
    if true not in shown:
        shown[-1] = true
    bars = "".join(
        f'<li class="{"true" if k == true else "predicted" if k == predicted else "other"}">'
        f'<span class="name">{escape(names[k])}</span><span class="track">'
        f'<span class="bar" style="width:{100 * max(float(scores[k]), 0.0) / scale:.1f}%"></span>'
        f"</span>{scores[k]:.2f}</li>"
        for k in sorted(shown)
    )
    alt = escape(f"Image {index}, class {names[true]}, taken for {names[predicted]}")
    return (
        f'<figure><img src="{png(results.dataset.images[index])}" alt="{alt}"><figcaption>'
        f"<b>{escape(names[true])}</b> taken for <b>{escape(names[predicted])}</b> "
        f'<small>image {index}</small></figcaption><ol class="bars">{bars}</ol></figure>'
    )
