"""One picture of what a network encodes: poses moved, for pages that cannot hold a report."""

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageOps

from _report.results import Examples, Results
from capsjax.analysis.perturbation import reconstruct_perturbed, symmetric_offsets

ROWS = 5
HEIGHT = 48  # of an image, in pixels
GAP = 2


def picture(results: Results, examples: Examples) -> Image.Image:
    """In each row an image, and its reconstructions with one element of its pose moved.

    Of the first image of each class that is classified right, those in which an element changes
    most, each with another element, in the order of their classes.

    Raises:
      ValueError: the network has no decoder of class poses, or no image is classified right.
    """
    poses, model = examples.poses, results.checkpoint.model
    if poses is None or examples.reconstruction is None:
        raise ValueError(f"{results.checkpoint.config.model.name} has no decoder of class poses")
    offsets = symmetric_offsets()
    decoder = jax.jit(model.decoder)  # type: ignore[attr-defined]
    found = []
    for label, images in examples.by_class.items():
        right = [i for i in images if results.correct[i]]
        if right:
            pose = jnp.asarray(poses[examples.rows(right[:1])[0]])
            moved = reconstruct_perturbed(
                decoder, pose, label, offsets, conditional=getattr(model, "conditional", True)
            )
            change = np.abs(moved[:, -1] - moved[:, 0]).sum((-1, -2, -3))
            found += [(c, label, e, right[0], moved[e]) for e, c in enumerate(change)]
    if not found:
        raise ValueError(f"of the first images of {results.dataset.name} none is classified right")
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
        page.paste(_cell(image / 255), (GAP, GAP + i * cell))
        for k, pixels in enumerate(moved):
            page.paste(_cell(pixels), (5 * GAP + (k + 1) * cell, GAP + i * cell))
    return page


def _cell(pixels: np.ndarray) -> Image.Image:
    grey = np.round(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    image = Image.fromarray(np.broadcast_to(grey, (*grey.shape[:2], 3)).copy())
    return ImageOps.pad(image, (HEIGHT, HEIGHT))
