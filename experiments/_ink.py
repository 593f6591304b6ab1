"""Photographed writing made like a network's training images: as large, and of their brightness.

A photograph differs from a scan in its margins, its light, which changes over the paper, and in
being dark on light. The ground is taken to be a plane through the brightness of the picture's edge.
"""

from typing import NamedTuple

import ml_collections
import numpy as np
from PIL import Image

import capsjax

EDGE = 0.06  # of the picture's sides: its outermost pixels, taken for ground
INK = 0.4  # of the greatest contrast: what differs more from the ground is ink
NOISE = 0.2  # of the greatest contrast: what differs less from the ground is ground
EXAMINED = 200  # training images
WORKING_SIDE = 256  # pixels; larger pictures are reduced to it, which averages their noise


class Ink(NamedTuple):
    """How writing stands in images."""

    extent: float  # the longer side of its box, in sides of the image
    light: bool = True  # whether it is lighter than the ground


def of_training(config: ml_collections.ConfigDict, data_dir: str | None) -> Ink:
    """Measures how writing stands in a network's training images, by the median."""
    evaluation_data, tasks = capsjax.evaluation.scoring.evaluation_data, capsjax.data.tasks
    examples = evaluation_data(config, None, "train", data_dir).examples
    images = tasks.render(examples, tasks.spread(examples, EXAMINED)).images
    measured = [_measure(image) for image in images]
    extent = np.median([max(right - left, down - up) for (left, up, right, down), *_ in measured])
    light = np.mean([is_light for *_, is_light in measured]) > 0.5
    return Ink(float(extent) / max(images.shape[1:3]), bool(light))


def cropped(pixels: np.ndarray, like: Ink, size: tuple[int, int]) -> tuple[np.ndarray, list[str]]:
    """Crops a grey picture [h, w, 1] to its ink, which then stands as in `like`.

    Returns it as uint8 of `size`, (width, height), and in words what was done.
    """
    (left, top, right, bottom), contrast, is_light = _measure(pixels)
    strength = (contrast if is_light else -contrast) / max(np.abs(contrast).max(), 1)
    levels = np.clip((strength - NOISE) / (1 - 2 * NOISE), 0, 1)
    side = max(right - left, bottom - top) / like.extent
    width, height = side * min(1, size[0] / size[1]), side * min(1, size[1] / size[0])
    middle, centre = (left + right) / 2, (top + bottom) / 2
    frame = (middle - width / 2, centre - height / 2, middle + width / 2, centre + height / 2)
    image = Image.fromarray((255 * levels).astype(np.uint8))
    image = image.crop(tuple(round(place) for place in frame)).resize(size, Image.Resampling.BOX)
    cropped = np.asarray(image)[..., None]
    scale = max(1, max(pixels.shape[:2]) / WORKING_SIDE)
    done = [f"cropped to the ink of {scale * (right - left):.0f}×{scale * (bottom - top):.0f}"]
    if is_light != like.light:
        done.append("inverted")
    return cropped if like.light else 255 - cropped, done


def _measure(pixels: np.ndarray) -> tuple[tuple[int, int, int, int], np.ndarray, bool]:
    """Returns the box (left, top, right, bottom) of the ink, the contrast, whether it is light."""
    grey = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).convert("L")
    if max(grey.size) > WORKING_SIDE:
        grey.thumbnail((WORKING_SIDE, WORKING_SIDE), Image.Resampling.BOX)
    light = np.asarray(grey, np.float32)
    rows, columns = np.mgrid[: light.shape[0], : light.shape[1]]
    rim = max(1, round(EDGE * min(light.shape)))
    at_edge = np.ones(light.shape, bool)
    at_edge[rim:-rim, rim:-rim] = False
    plane = np.stack([np.ones_like(light), rows, columns], -1)
    coefficients, *_ = np.linalg.lstsq(plane[at_edge], light[at_edge], rcond=None)
    contrast = light - plane @ coefficients
    ink = np.abs(contrast) > max(INK * np.abs(contrast).max(), 1)
    box = Image.fromarray(ink).getbbox()
    if box is None:  # one colour
        return (0, 0, grey.width, grey.height), contrast, True
    return box, contrast, bool(contrast[ink].sum() > 0)
