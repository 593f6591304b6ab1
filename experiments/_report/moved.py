"""One picture of what a network encodes: poses moved, for pages that cannot hold a report."""

import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageOps

from _report.decoder import Drawing
from _report.pictures import as_image
from _report.results import Examples, Results
from capsjax.evaluation.perturbation import reconstruct_perturbed, symmetric_offsets

ROWS = 5
HEIGHT = 48  # of an image, in pixels
GAP = 2


def picture(results: Results, examples: Examples) -> Image.Image:
    """In each row an image, and its reconstructions with one element of its pose moved.

    Takes the first correctly classified image of each class, and of these the ones in which an
    element changes most, each with another element, in the order of their classes.

    Raises:
      ValueError: the network has no decoder of class poses, or no image is classified correctly.
    """
    poses, drawing = examples.poses, Drawing.of(results.checkpoint.model)
    if poses is None or examples.reconstruction is None or drawing is None:
        raise ValueError(f"{results.checkpoint.config.model.name} has no decoder of class poses")
    offsets = symmetric_offsets()
    found = []
    for label, images in examples.by_class.items():
        right = [i for i in images if results.correct[i]]
        if right:
            pose = jnp.asarray(poses[examples.rows(right[:1])[0]])
            moved = reconstruct_perturbed(
                drawing.compiled, pose, label, offsets, conditional=drawing.conditional
            )
            change = np.abs(moved[:, -1] - moved[:, 0]).sum((-1, -2, -3))
            found += [(c, label, e, right[0], moved[e]) for e, c in enumerate(change)]
    if not found:
        raise ValueError(
            f"none of the first images of {results.dataset.name} is classified correctly: train "
            "longer, or name another data set with --dataset"
        )
    rows: dict[int, tuple[int, np.ndarray]] = {}
    elements: set[int] = set()
    for _, label, element, index, moved in sorted(found, key=lambda row: -row[0]):
        if len(rows) < ROWS and label not in rows and element not in elements:
            rows[label] = index, moved
            elements.add(element)
    return _grid([(results.dataset.images[i], moved) for _, (i, moved) in sorted(rows.items())])


def _grid(rows: list[tuple[np.ndarray, np.ndarray]]) -> Image.Image:
    """Each row's image, a wider gap, and what was made of it."""
    cell = HEIGHT + GAP
    width = (len(rows[0][1]) + 1) * cell + 4 * GAP
    page = Image.new("RGB", (width, len(rows) * cell + GAP), "white")
    for i, (image, moved) in enumerate(rows):
        page.paste(_cell(image), (GAP, GAP + i * cell))
        for k, pixels in enumerate(moved):
            page.paste(_cell(pixels), (5 * GAP + (k + 1) * cell, GAP + i * cell))
    return page


def _cell(pixels: np.ndarray) -> Image.Image:
    return ImageOps.pad(as_image(pixels).convert("RGB"), (HEIGHT, HEIGHT))
