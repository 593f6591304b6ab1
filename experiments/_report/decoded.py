"""Pictures that the decoder makes: reconstructions, and poses moved."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageOps

from _report.decoder import LIMIT, Drawing, effects, errors, moved, spread
from _report.html import Html, counted, section, tag
from _report.pictures import as_image, picture, sheet
from _report.results import Examples, Results

ROWS = 5  # of poses moved
STEPS = 11
HEIGHT, GAP = 48, 2  # pixels of an image in the picture for README.md, and between two
LACKS = "This network has no decoder of class poses."


def reconstructions(results: Results, examples: Examples) -> Html:
    """Inputs beside what the decoder makes of their class capsule."""
    title, dataset = "Reconstructions", results.dataset
    if examples.reconstruction is None:
        return section("reconstructions", title, "This network has no decoder.")
    rows = []
    for label, places in examples.by_class.items():
        decoded = examples.reconstruction[examples.rows(places)]
        pairs = [_pair(results, *pair) for pair in zip(places, decoded, strict=True)]
        head = tag("th", dataset.class_names[label], scope="row")
        rows.append(tag("tr", head, tag("td", *pairs)))
    drawing = Drawing.of(results.checkpoint.model)
    alone = drawing is None or drawing.conditional
    source = "the class capsule with the highest score alone" if alone else "all class capsules"
    text = (
        f"The first images of each class in the {dataset.split} split. To the right of each is "
        f"what the decoder draws from {source}. An arrow names the predicted class if it is wrong."
    )
    if drawing is not None and examples.poses is not None:
        error = errors(results, examples, drawing)
        text += (
            f" Drawn from their true classes, images have a mean squared error of "
            f"{error.decoder:.4f} (pixels lie between 0 and 1); the mean image of each class would "
            f"have {error.typical:.4f}."
        )
    left_out = len(np.unique(dataset.labels)) - len(examples.by_class)
    if left_out:
        text += f" {counted(left_out, 'more class is', 'more classes are')} not shown."
    body = tag("table", tag("tbody", *rows), class_="pairs")
    return section("reconstructions", title, text, body)


def _pair(results: Results, index: int, reconstruction: Float[np.ndarray, "h w c"]) -> Html:
    names, image = results.dataset.class_names, results.dataset.images[index]
    true, predicted = (names[k] for k in (results.dataset.labels[index], results.predicted[index]))
    arrow = [] if results.correct[index] else [tag("figcaption", f"→ {predicted}")]
    alt = f"Its reconstruction; predicted class {predicted}"
    return tag(
        "figure",
        tag("img", src=picture(image), alt=f"Image {index}, class {true}"),
        tag("img", src=picture(reconstruction), alt=alt),
        *arrow,
        class_="pair",
    )


class Row(NamedTuple):
    """An image, and what is drawn while one element of its class capsule's pose moves."""

    index: int  # of the image in the data set
    label: int  # its class
    element: int  # of the pose
    # at −3, …, +3 standard deviations from the mean of the class
    images: Float[np.ndarray, "steps h w c"]


def rows(results: Results, examples: Examples) -> list[Row] | str:
    """Returns the classes and elements that change pictures most, none of them twice, by class.

    The image of a class is its first that is classified correctly. A sentence instead: there is no
    decoder, or no such image.
    """
    drawing = Drawing.of(results.checkpoint.model)
    if examples.poses is None or examples.reconstruction is None or drawing is None:
        return LACKS
    own = spread(results, examples)
    strength = effects(results, examples, drawing, own)
    shown = list(examples.by_class)
    first = [
        next((i for i in places if results.correct[i]), None)
        for places in examples.by_class.values()
    ]
    strength[[k for k, index in enumerate(first) if index is None]] = -1
    chosen = []
    while len(chosen) < ROWS and strength.max() >= 0:
        k, element = (int(i) for i in np.unravel_index(strength.argmax(), strength.shape))
        strength[k], strength[:, element] = -1, -1
        index = first[k]
        assert index is not None
        steps = own.deviations[k][:, None] * np.linspace(-LIMIT, LIMIT, STEPS)
        pose = examples.poses[examples.rows([index])[0]]
        images = moved(drawing, pose, shown[k], own.means[k][:, None] + steps)
        chosen.append(Row(index, shown[k], element, images[element]))
    if not chosen:
        return "None of the images above is classified correctly."
    return sorted(chosen, key=lambda row: row.label)


def poses(results: Results, examples: Examples) -> Html:
    """Elements of class capsules' poses moved (Sabour et al. 2017, figure 4)."""
    title, moved_rows = "What the pose elements mean", rows(results, examples)
    if isinstance(moved_rows, str):
        return section("poses", title, moved_rows)
    ends = [tag("span", end) for end in (f"−{LIMIT} σ", "0", f"+{LIMIT} σ")]
    lines = [tag("tr", tag("td"), tag("td", tag("div", *ends, class_="ends")))]
    for index, label, element, images in moved_rows:
        name = results.dataset.class_names[label]
        image = tag("img", src=picture(results.dataset.images[index]), alt=f"Image {index}")
        strip = sheet(images[None], gap=2)
        alt = f"Class {name}, element {element} moved from −{LIMIT} to +{LIMIT} σ"
        words = tag("span", f"class {name}, element {element}")
        head = tag("th", tag("div", image, words), scope="row")
        lines.append(tag("tr", head, tag("td", tag("img", src=strip, alt=alt))))
    text = (
        "In each row one element of a class capsule's pose moves, from three standard deviations "
        "below the mean of its class to three above, and the decoder draws the result. These are "
        f"the {len(moved_rows)} classes and elements that change the picture most."
    )
    return section("poses", title, text, tag("table", tag("tbody", *lines), class_="moved"))


def poses_picture(results: Results, examples: Examples) -> Image.Image:
    """Draws the same rows as one picture, for pages that cannot hold a report."""
    moved_rows = rows(results, examples)
    if isinstance(moved_rows, str):
        raise ValueError(f"{results.checkpoint.config.model.name}: {moved_rows}")
    cell = HEIGHT + GAP
    page = Image.new("RGB", ((STEPS + 1) * cell + 4 * GAP, len(moved_rows) * cell + GAP), "white")
    for i, row in enumerate(moved_rows):
        for k, pixels in enumerate([results.dataset.images[row.index], *row.images]):
            image = ImageOps.pad(as_image(pixels).convert("RGB"), (HEIGHT, HEIGHT))
            # A wider gap after the image.
            page.paste(image, (GAP + k * cell + 4 * GAP * (k > 0), GAP + i * cell))
    return page
