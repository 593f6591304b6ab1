"""The page of a network that takes images apart into slots."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from _report import numbers
from _report.html import document, section, tag
from _report.pictures import sheet
from capsjax.evaluation.segmentation import foreground_ari, segment

if TYPE_CHECKING:
    from capsjax.evaluation.scoring import EvaluationData
    from capsjax.runs.checkpoints import Checkpoint

ROWS = 8


def page(checkpoint: "Checkpoint", data: "EvaluationData", commands: Sequence[str]) -> str:
    """Masks and reconstructions of the first images, and how good the masks of all are."""
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
    title = escape(f"{checkpoint.config.model.name} on {data.name}")
    body = [
        tag("header", tag("h1", f"{checkpoint.config.model.name} on {data.name}")),
        "<main>",
        section("slots", "Slots", text, tag("img", src=picture, alt=alt)),
        numbers.settings(checkpoint.config),
        numbers.commands(commands, "A finished run is only evaluated."),
        "</main>",
    ]
    return document(title, "\n".join(body))
