"""The pages: of one run, of a network of slots, and of images by class."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import ml_collections
import numpy as np
from jaxtyping import Int, UInt8

from _report import curves, decoder
from _report.explorer import explorer
from _report.html import (
    Html,
    contents,
    counted,
    document,
    image,
    join,
    percent,
    section,
    sheet,
    tag,
)
from _report.results import MAX_MISTAKES, Results, examples
from capsjax.evaluation.scoring import EvaluationData
from capsjax.evaluation.segmentation import foreground_ari, segment
from capsjax.runs.checkpoints import Checkpoint
from capsjax.training.config import flatten
from capsjax.training.state import num_parameters

SCRIPTS = ("elements.js", "curves.js", "answers.js", "decoder.js", "explorer.js")
EVALUATED = "A finished run is evaluated, not trained again"
SECTIONS = {
    "learning": "Learning",
    "confusion": "Confusion matrix",
    "explorer": "Explorer",
    "reconstructions": "Reconstructions",
    "poses": "Pose elements",
    "mistakes": "Mistakes",
    "config": "Config",
    "commands": "Reproduce",
}
ROWS = 8  # of images and their slots
LONG_NAME = 4  # of a class, in letters
MORE_MISTAKES, MAX_BARS = 108, 10


def of_run(results: Results, versions: dict[str, str], lines: Sequence[str]) -> str:
    """Writes one HTML document that refers to nothing outside itself."""
    config, shown = results.checkpoint.config, examples(results)
    drawing = decoder.Drawing.of(results, shown)
    explored, data = explorer(results, shown, drawing)
    body = [
        header(results, versions),
        contents(SECTIONS),
        "<main>",
        learning(results),
        confusion(results),
        explored,
        decoder.reconstructions(results, shown, drawing),
        decoder.poses(results, drawing),
        mistakes(results),
        settings(config),
        commands(lines, f"{EVALUATED}, unless you give another directory."),
        "</main>",
    ]
    title = f"{config.model.name} on {results.dataset.name}"
    return document(title, "\n".join(body), SCRIPTS, data)


def of_slots(checkpoint: Checkpoint, data: EvaluationData, lines: Sequence[str]) -> str:
    """Shows masks and reconstructions of the first images, and how good the masks of all are."""
    segmented = segment(checkpoint.model, data.examples)
    index = foreground_ari(segmented.masks, segmented.objects)
    shown = segmented.parts[:ROWS] * segmented.masks[:ROWS, ..., None]
    whole = np.stack([segmented.image[:ROWS], segmented.reconstruction[:ROWS]], axis=1)
    text = (
        f"Adjusted Rand index of the foreground: {index.mean():.3f}, the mean of "
        f"{len(index):,} images (1: the pixels of each object, and no others, share a slot). "
        "In each row: an image, its reconstruction, and what each slot adds to it."
    )
    picture = sheet(np.concatenate([whole, shown], axis=1), gap=4)
    alt = f"{len(shown)} images, their reconstructions and the parts of {shown.shape[1]} slots"
    title = f"{checkpoint.config.model.name} on {data.name}"
    body = [
        tag("header", tag("h1", title)),
        "<main>",
        section("slots", "Slots", text, tag("img", src=picture, alt=alt)),
        settings(checkpoint.config),
        commands(lines, f"{EVALUATED}."),
        "</main>",
    ]
    return document(title, "\n".join(body))


def gallery(network: str, classes: Mapping[str, Sequence[Html]], broken: Sequence[str]) -> str:
    """Shows figures by class; `broken` are lines on files that could not be read."""
    present = {name: images for name, images in classes.items() if images}
    title = f"{counted(sum(map(len, present.values())), 'image')}, {network}"
    parts = [tag("h1", title)]
    for i, (name, images) in enumerate(present.items()):
        body = tag("div", *images, class_="gallery")
        parts.append(section(f"class-{i}", name, counted(len(images), "image"), body))
    if broken:
        lines = tag("ul", *(tag("li", line) for line in broken))
        parts.append(section("broken", "Not read", counted(len(broken), "file"), lines))
    return document(title, join(parts))


def figure(pixels: UInt8[np.ndarray, "h w c"], file: str, lines: Sequence[str]) -> Html:
    """Shows an image as the network saw it above `lines`, its path under the pointer."""
    caption = tag("figcaption", Html("<br>".join(map(escape, lines))), title=file)
    return tag("figure", image(pixels, file), caption)


def said(versions: Mapping[str, str]) -> str:
    """Writes the versions of the software."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def header(results: Results, versions: dict[str, str]) -> Html:
    """Says what was trained, and how good it is."""
    checkpoint, dataset, summary = results.checkpoint, results.dataset, results.summary
    config, step = checkpoint.config, checkpoint.step
    validation = results.history.validation_accuracy().get(step)
    held_out = "" if validation is None else f", validation accuracy {percent(validation)}"
    facts = {
        "Model": config.model.name,
        "Parameters": f"{num_parameters(checkpoint.model):,}",
        "Trained on": config.data.name,
        "Images": "×".join(map(str, config.task.input_shape)),
        "Checkpoint": f"step {step:,}{held_out}",
        "Epochs": f"{results.history.records[-1]['epoch']} of {config.training.epochs}",
        "Seed": str(config.seed),
        "Versions": said(versions),
    }
    listed = [tag("div", tag("dt", key), tag("dd", value)) for key, value in facts.items()]
    right, (low, high) = int(results.correct.sum()), summary.interval
    interval = f"95 % interval {100 * low:.1f} to {percent(high)}"
    share = tag("strong", percent(summary.accuracy)), f" {dataset.split} accuracy"
    return tag(
        "header",
        tag("h1", f"{config.model.name} on {dataset.name}"),
        tag("p", *share, class_="accuracy"),
        tag("p", f"{right:,} of {len(dataset.labels):,} images right; {interval}."),
        tag("dl", *listed, class_="facts"),
    )


def learning(results: Results) -> Html:
    """Shows loss and accuracy over the run."""
    step, history = results.checkpoint.step, results.history
    losses, shares = (history.training(name) for name in ("loss", "accuracy"))
    validation = history.validation_accuracy()
    first, *_, last = [*losses.values()] * 2
    alt = f"Training loss, from {first:.3g} to {last:.3g} in {max(losses):,} steps"
    plots = curves.losses([curves.Line("train", losses)], alt, step)
    alt = f"Training accuracy, {[*shares.values()][-1]:.1%} at the end"
    lines = [curves.Line("train", shares)]
    if validation:
        alt += f", and validation accuracy, {max(validation.values()):.1%} at best"
        lines.append(curves.Line("validation", validation, colour=1, marked=True))
    plots += curves.accuracies(lines, alt, step)
    # The last record of an epoch may cover fewer steps.
    steps = {record["steps"] for record in history.records if record["split"] == "train"}
    at_most = "" if len(steps) == 1 else "at most "
    text = (
        f"Training values are means over {at_most}{counted(max(steps), 'step')}, on images as "
        "training sees them, while the network is still changing. "
    )
    if validation:
        text += "Validation is measured after each epoch on images held out of the training split. "
    text += "The dotted line is the checkpoint shown on this page."
    return section("learning", "Learning", text, tag("div", Html(plots), class_="plots"))


def confusion(results: Results) -> Html:
    """Shows the counts by true and predicted class."""
    names, counts = results.dataset.class_names, results.summary.confusion
    # Long names stand upright, so that the columns stay narrow.
    kind = "long" if max(map(len, names)) > LONG_NAME else None
    head = [tag("th", name, scope="col", class_=kind) for name in names]
    rows = []
    for i, name in enumerate(names):
        cells = [_cell(int(n), n / max(counts[i].sum(), 1), i, j) for j, n in enumerate(counts[i])]
        share = percent(results.summary.per_class[i]) if counts[i].any() else "–"
        right = tag("td", share, class_="share")
        rows.append(tag("tr", tag("th", name, scope="row"), *cells, right))
    parts = tag("thead", tag("tr", tag("td"), *head, tag("th", "right", scope="col")))
    shown = tag("table", parts, tag("tbody", *rows), class_="confusion")
    text = (
        "Number of images by true class (rows) and predicted class (columns). On the right: the "
        "fraction of each class that is correct."
    )
    body = tag("div", shown, class_="scroll") + tag("div", id="cell", hidden=True)
    return section("confusion", "Confusion matrix", text, body)


def _cell(count: int, share: float, true: int, predicted: int) -> Html:
    right = true == predicted
    if not count:
        return tag("td", "0", class_="none") if right else tag("td")
    heat = f"--heat:{share**0.5:.2f}"  # by the square root: one mistake in a hundred is seen
    places = {"data_true": true, "data_predicted": predicted}
    return tag("td", str(count), class_="right" if right else "wrong", style=heat, **places)


def settings(config: ml_collections.ConfigDict) -> Html:
    """Shows the whole config."""
    rows = [
        tag("tr", tag("th", key, scope="row"), tag("td", str(value)))
        for key, value in flatten(config).items()
    ]
    shown = tag("table", tag("tbody", *rows), class_="config")
    body = tag("details", tag("summary", "Show"), tag("div", shown, class_="scroll", tabindex=0))
    text = "Everything that the run depends on, as the checkpoint holds it."
    return section("config", "Config", text, body)


def commands(lines: Iterable[str], note: str) -> Html:
    """Shows the commands that repeat all this; `note` is the last sentence above them."""
    text = f"In a clone of capsjax, with this page's versions. {note}"
    body = tag("pre", "\n".join(lines), class_="scroll", tabindex=0)
    return section("commands", "Reproduce", text, body)


def mistakes(results: Results) -> Html:
    """Returns the surest wrong answers, and further ones of all kinds."""
    worst = results.worst_mistakes()
    if not len(worst):
        text = "There are none: every image is classified correctly."
        return section("mistakes", "Mistakes", text)
    first, more = worst[:MAX_MISTAKES], _of_all_kinds(results, worst[MAX_MISTAKES:])
    scale = max(1.0, float(results.scores[worst].max()))
    cards, rest = (
        tag("div", *(_scored(results, int(i), scale) for i in places), class_="mistakes")
        for places in (first, more)
    )
    text = (
        f"{len(first) + len(more)} of {counted(len(worst), 'wrong answer')}, starting with those "
        "where the wrong class leads by most. The bars are the class scores (for a CapsNet, the "
        "lengths of the class capsules). Blue: the true class. Orange: the predicted one."
    )
    body = tag("div", id="filter", hidden=True) + cards
    if len(more):
        body += tag("details", tag("summary", f"{len(more)} more"), rest, id="more")
    return section("mistakes", "Mistakes", text, body)


def _of_all_kinds(results: Results, worst: Int[np.ndarray, "n"]) -> Int[np.ndarray, "m"]:
    """Chooses at most `MORE_MISTAKES`, from as many cells of the confusion matrix as possible."""
    seen: Counter[tuple[str, str]] = Counter()
    rank = []
    for place in worst.tolist():
        kind = results.named(place)
        rank.append(seen[kind])
        seen[kind] += 1
    return worst[np.sort(np.argsort(rank, kind="stable")[:MORE_MISTAKES])]


def card(
    place: int, true: str, wrong: str, pixels: np.ndarray, *more: Html, **data: object
) -> Html:
    """Returns an image and for what it is taken."""
    shown = image(pixels, f"Image {place}, class {true}, taken for {wrong}")
    number = tag("small", f"image {place}")
    caption = tag("figcaption", tag("b", true), " taken for ", tag("b", wrong), " ", number)
    return tag("figure", shown, caption, *more, **data)


def _scored(results: Results, place: int, scale: float) -> Html:
    names, scores = results.dataset.class_names, results.scores[place]
    true, predicted = int(results.dataset.labels[place]), int(results.predicted[place])
    shown = np.argsort(-scores, kind="stable")[:MAX_BARS].tolist()
    if true not in shown:
        shown[-1] = true
    bars = []
    for k in sorted(shown):
        width = f"width:{100 * max(float(scores[k]), 0.0) / scale:.1f}%"
        track = tag("span", tag("span", class_="bar", style=width), class_="track")
        kind = "true" if k == true else "predicted" if k == predicted else "other"
        name = tag("span", names[k], class_="name")
        bars.append(tag("li", name, track, f"{scores[k]:.2f}", class_=kind))
    data = {"data_place": place, "data_true": true, "data_predicted": predicted}
    data["data_lead"] = f"{results.lead[place]:.4f}"
    pixels = results.dataset.images[place]
    listed = tag("ol", *bars, class_="bars")
    return card(place, *results.named(place), pixels, listed, **data)
