"""A page of images by class."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from _report.html import Html, counted, document, join, section, tag
from _report.pictures import picture


class Shown(NamedTuple):
    """An image of the gallery."""

    pixels: UInt8[np.ndarray, "h w c"]  # as the network saw it
    file: str  # its path, shown under the pointer
    lines: Sequence[str]  # below it


def gallery(network: str, classes: Mapping[str, Sequence[Shown]], broken: Sequence[str]) -> str:
    """Returns the page of a network; `broken` are lines on files that could not be read."""
    present = {name: images for name, images in classes.items() if images}
    title = f"{counted(sum(map(len, present.values())), 'image')}, {network}"
    parts = [tag("h1", title)]
    for i, (name, images) in enumerate(present.items()):
        body = tag("div", *map(_figure, images), class_="gallery")
        parts.append(section(f"class-{i}", name, counted(len(images), "image"), body))
    if broken:
        lines = tag("ul", *(tag("li", line) for line in broken))
        parts.append(section("broken", "Not read", counted(len(broken), "file"), lines))
    return document(escape(title), join(parts))


def _figure(image: Shown) -> Html:
    lines = Html("<br>").join(map(escape, image.lines))
    return tag(
        "figure",
        tag("img", src=picture(image.pixels), alt=image.file),
        tag("figcaption", Html(lines), title=image.file),
    )
