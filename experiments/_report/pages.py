"""The pages: of one run, of a network of slots, and of images by class."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from _report import decoder, numbers
from _report.explorer import explorer
from _report.html import Html, contents, counted, document, image, join, section, tag
from _report.mistakes import mistakes
from _report.pictures import sheet
from _report.results import Results, examples
from capsjax.evaluation.scoring import EvaluationData
from capsjax.evaluation.segmentation import foreground_ari, segment
from capsjax.runs.checkpoints import Checkpoint

SCRIPTS = ("elements.js", "curves.js", "answers.js", "decoder.js", "explorer.js")
EVALUATED = "A finished run is only evaluated"
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


def of_run(results: Results, versions: dict[str, str], commands: Sequence[str]) -> str:
    """Writes one HTML document that refers to nothing outside itself."""
    config, shown = results.checkpoint.config, examples(results)
    drawing = decoder.Drawing.of(results, shown)
    explored, data = explorer(results, shown, drawing)
    body = [
        numbers.header(results, versions),
        contents(SECTIONS),
        "<main>",
        numbers.learning(results),
        numbers.confusion(results),
        explored,
        decoder.reconstructions(results, shown, drawing),
        decoder.poses(results, drawing),
        mistakes(results),
        numbers.settings(config),
        numbers.commands(commands, f"{EVALUATED}; to train again, give another directory."),
        "</main>",
    ]
    title = f"{config.model.name} on {results.dataset.name}"
    return document(title, "\n".join(body), SCRIPTS, data)


def of_slots(checkpoint: Checkpoint, data: EvaluationData, commands: Sequence[str]) -> str:
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
        numbers.settings(checkpoint.config),
        numbers.commands(commands, f"{EVALUATED}."),
        "</main>",
    ]
    return document(title, "\n".join(body))


class Shown(NamedTuple):
    """An image of the gallery."""

    pixels: UInt8[np.ndarray, "h w c"]  # as the network saw it
    file: str  # its path, shown under the pointer
    lines: Sequence[str]  # below it


def gallery(network: str, classes: Mapping[str, Sequence[Shown]], broken: Sequence[str]) -> str:
    """Shows what a network made of images; `broken` are lines on files that could not be read."""
    present = {name: images for name, images in classes.items() if images}
    title = f"{counted(sum(map(len, present.values())), 'image')}, {network}"
    parts = [tag("h1", title)]
    for i, (name, images) in enumerate(present.items()):
        body = tag("div", *map(_figure, images), class_="gallery")
        parts.append(section(f"class-{i}", name, counted(len(images), "image"), body))
    if broken:
        lines = tag("ul", *(tag("li", line) for line in broken))
        parts.append(section("broken", "Not read", counted(len(broken), "file"), lines))
    return document(title, join(parts))


def _figure(shown: Shown) -> Html:
    caption = tag("figcaption", Html("<br>".join(map(escape, shown.lines))), title=shown.file)
    return tag("figure", image(shown.pixels, shown.file), caption)
