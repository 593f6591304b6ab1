"""Pictures that the decoder makes: reconstructions, and poses moved."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageOps

from _report.decoder import LIMIT, Drawing
from _report.html import Html, counted, image, section, tag
from _report.pictures import as_image, sheet
from _report.results import Examples, Results

ROWS = 5  # of poses moved
STEPS = 11
HEIGHT, GAP = 48, 2  # pixels of an image in the picture for README.md, and between two


def reconstructions(results: Results, examples: Examples, drawing: Drawing | None) -> Html:
    """Shows inputs beside what the decoder makes of their class capsule."""
    title, dataset = "Reconstructions", results.dataset
    if examples.reconstruction is None:
        return section("reconstructions", title, "This network has no decoder.")
    rows = []
    for label, places in examples.by_class.items():
        decoded = examples.reconstruction[examples.rows(places)]
        pairs = [_pair(results, *pair) for pair in zip(places, decoded, strict=True)]
        head = tag("th", dataset.class_names[label], scope="row")
        rows.append(tag("tr", head, tag("td", *pairs)))
    alone = drawing is None or drawing.conditional
    source = "the class capsule with the highest score alone" if alone else "all class capsules"
    text = (
        f"The first images of each class in the {dataset.split} split. To the right of each is "
        f"what the decoder draws from {source}. An arrow names the predicted class if it is wrong."
    )
    if drawing is not None:
        text += (
            f" Drawn from their true classes, images have a mean squared error of "
            f"{drawing.errors.decoder:.4f} (pixels lie between 0 and 1); the mean image of each "
            f"class would have {drawing.errors.typical:.4f}."
        )
    if left_out := len(np.unique(dataset.labels)) - len(examples.by_class):
        text += f" {counted(left_out, 'more class is', 'more classes are')} not shown."
    body = tag("table", tag("tbody", *rows), class_="pairs")
    return section("reconstructions", title, text, body)


def _pair(results: Results, place: int, reconstruction: Float[np.ndarray, "h w c"]) -> Html:
    true, predicted = results.named(place)
    arrow = [] if results.correct[place] else [tag("figcaption", f"→ {predicted}")]
    shown = image(results.dataset.images[place], f"Image {place}, class {true}")
    drawn = image(reconstruction, f"Its reconstruction; predicted class {predicted}")
    return tag("figure", shown, drawn, *arrow, class_="pair")


class Row(NamedTuple):
    """An image, and what is drawn while one element of its class capsule's pose moves."""

    place: int  # of the image in the data set
    label: int  # its class
    element: int  # of the pose
    # at −3, …, +3 standard deviations from the mean of the class
    images: Float[np.ndarray, "steps h w c"]


def rows(drawing: Drawing | None) -> list[Row] | str:
    """Returns the classes and elements that change pictures most, none of them twice, by class.

    The image of a class is its first that is classified correctly. A sentence instead: there is no
    decoder, or no such image.
    """
    if drawing is None:
        return "This network has no decoder of class poses."
    strength, correct = drawing.effects.copy(), drawing.results.correct
    first: list[int] = []
    for k, places in enumerate(drawing.examples.by_class.values()):
        right = [place for place in places if correct[place]]
        first.append(right[0] if right else -1)
        strength[k, :] = strength[k] if right else -1
    chosen: list[Row] = []
    while len(chosen) < ROWS and strength.max() >= 0:
        k, element = (int(i) for i in np.unravel_index(strength.argmax(), strength.shape))
        strength[k], strength[:, element] = -1, -1
        label, values = drawing.shown[k], drawing.values(k, np.linspace(-LIMIT, LIMIT, STEPS))
        images = drawing.moved(first[k], label, values)
        chosen.append(Row(first[k], label, element, images[element]))
    if not chosen:
        return "None of the images above is classified correctly."
    return sorted(chosen, key=lambda row: row.label)


def poses(results: Results, drawing: Drawing | None) -> Html:
    """Shows elements of class capsules' poses moved (Sabour et al. 2017, figure 4)."""
    title, moved = "What the pose elements mean", rows(drawing)
    if isinstance(moved, str):
        return section("poses", title, moved)
    ends = [tag("span", end) for end in (f"−{LIMIT} σ", "0", f"+{LIMIT} σ")]
    lines = [tag("tr", tag("td"), tag("td", tag("div", *ends, class_="ends")))]
    for place, label, element, images in moved:
        name = results.dataset.class_names[label]
        shown = image(results.dataset.images[place], f"Image {place}")
        alt = f"Class {name}, element {element} moved from −{LIMIT} to +{LIMIT} σ"
        strip = tag("img", src=sheet(images[None], gap=2), alt=alt)
        words = tag("span", f"class {name}, element {element}")
        head = tag("th", tag("div", shown, words), scope="row")
        lines.append(tag("tr", head, tag("td", strip)))
    text = (
        "In each row one element of a class capsule's pose moves, from three standard deviations "
        "below the mean of its class to three above, and the decoder draws the result. These are "
        f"the {len(moved)} classes and elements that change the picture most."
    )
    return section("poses", title, text, tag("table", tag("tbody", *lines), class_="moved"))


def poses_picture(results: Results, examples: Examples) -> Image.Image:
    """Draws the same rows as one picture, for pages that cannot hold a report."""
    moved = rows(Drawing.of(results, examples))
    if isinstance(moved, str):
        raise ValueError(f"{results.checkpoint.config.model.name}: {moved}")
    cell = HEIGHT + GAP
    page = Image.new("RGB", ((STEPS + 1) * cell + 4 * GAP, len(moved) * cell + GAP), "white")
    for i, row in enumerate(moved):
        for k, pixels in enumerate([results.dataset.images[row.place], *row.images]):
            shown = ImageOps.pad(as_image(pixels).convert("RGB"), (HEIGHT, HEIGHT))
            # A wider gap after the image.
            page.paste(shown, (GAP + k * cell + 4 * GAP * (k > 0), GAP + i * cell))
    return page
