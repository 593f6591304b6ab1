"""What the decoder draws: reconstructions, poses moved, and its weights for the page."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from PIL import Image, ImageOps

from _report.html import Html, as_image, counted, image, section, sheet, tag
from _report.results import Examples, Results
from capsjax.layers import Decoder

LARGEST = 8_000_000  # bytes of 16-bit weights: a third more in the page's base64
FEWEST = 5  # images of a class whose own standard deviations are used
LIMIT = 3  # standard deviations by which elements are moved, …
STEPS = 11  # … in so many pictures
ROWS = 5  # of poses moved
HEIGHT, GAP = 48, 2  # pixels of an image in the picture for README.md, and between two


class Errors(NamedTuple):
    """Squared errors, the means over images and pixels."""

    decoder: float  # what the decoder draws, given the pose of the true class
    typical: float  # the mean of the class's other images (black if none), over the whole split


@dataclass(frozen=True)
class Drawing:
    """A network's decoder, and the class poses of `examples`, which `of` makes sure are there."""

    results: Results
    examples: Examples
    draw: Callable[[np.ndarray, np.ndarray], jax.Array]  # from poses and masks, compiled
    conditional: bool  # whether it sees one class's pose alone; otherwise it sees those of all
    shown: list[int]  # the classes shown
    seen: list[int]  # those whose poses the page needs
    labels: Int[np.ndarray, "n"]  # the classes of the examples

    @classmethod
    def of(cls, results: Results, examples: Examples) -> "Drawing | None":
        """Returns the decoder of a network; None where it has none that takes poses and masks."""
        model, dataset = results.checkpoint.model, results.dataset
        decoder = getattr(model, "decoder", None)
        if decoder is None or examples.poses is None:
            return None
        # Every published network with a decoder and without this attribute is conditional.
        conditional, shown = getattr(model, "conditional", True), list(examples.by_class)
        seen = shown if conditional else list(range(dataset.num_classes))
        labels = dataset.labels[examples.places]
        return cls(results, examples, jax.jit(decoder), conditional, shown, seen, labels)

    def __call__(
        self, poses: Float[np.ndarray, "n classes d"], labels: Int[np.ndarray, "n"] | int
    ) -> Float[np.ndarray, "n h w c"]:
        """Draws the images that the poses of the classes `labels` stand for."""
        num, classes, _ = poses.shape
        masks = np.ones((num, classes), np.float32)
        if self.conditional:
            masks = np.eye(classes, dtype=np.float32)[np.broadcast_to(labels, num)]
        return np.asarray(self.draw(poses, masks))

    @cached_property
    def _by_class(self) -> list[Float[np.ndarray, "m d"]]:
        """The poses of true classes, by class."""
        poses, labels = self.examples.poses, self.labels
        return [poses[labels == label, label] for label in self.shown]

    @cached_property
    def means(self) -> Float[np.ndarray, "shown d"]:
        """The mean pose of each class shown, over its images in the examples."""
        return np.stack([poses.mean(0) for poses in self._by_class])

    @cached_property
    def deviations(self) -> Float[np.ndarray, "shown d"]:
        """Their standard deviations, over the images of all classes where a class has few."""
        every = self.examples.poses[np.arange(len(self.labels)), self.labels]
        enough = [poses if len(poses) >= FEWEST else every for poses in self._by_class]
        # An element that never changes still has a slider.
        return np.maximum(np.stack([poses.std(0) for poses in enough]), 1e-6)

    @cached_property
    def errors(self) -> Errors:
        """The errors on the images in the examples."""
        dataset, labels = self.results.dataset, self.labels
        drawn = 255 * self(self.examples.poses, labels)
        images = dataset.images[self.examples.places]
        # An image is not in its own mean: where a class has few, that would be close to each.
        sums = {k: dataset.images[dataset.labels == k].sum(0, dtype=int) for k in self.shown}
        others = np.maximum(np.bincount(dataset.labels)[labels] - 1, 1)[:, None, None, None]
        typical = (np.stack([sums[label] for label in labels]) - images) / others
        return Errors(*(float(np.mean(((made - images) / 255) ** 2)) for made in (drawn, typical)))

    @cached_property
    def effects(self) -> Float[np.ndarray, "shown d"]:
        """The mean change of a pixel when an element goes from −3 to +3 deviations."""
        changes = []
        for k, (label, places) in enumerate(self.examples.by_class.items()):
            ends = self.values(k, np.array([-LIMIT, LIMIT]))
            images = [self.moved(place, label, ends) for place in places]
            changes.append([np.abs(i[:, 1] - i[:, 0]).mean((1, 2, 3)) for i in images])
        return np.stack([np.mean(of_class, axis=0) for of_class in changes])

    def values(self, k: int, steps: np.ndarray) -> Float[np.ndarray, "d steps"]:
        """Returns the elements of the k-th class shown, `steps` deviations from their means."""
        return self.means[k][:, None] + self.deviations[k][:, None] * steps

    def moved(
        self, place: int, label: int, values: Float[np.ndarray, "d k"]
    ) -> Float[np.ndarray, "d k h w c"]:
        """Draws the image at `place` with each element of the pose of `label` at its `values`."""
        poses = self.examples.poses[self.examples.rows([place])[0]]
        size, count = values.shape
        changed = np.repeat(poses[None], size * count, axis=0).reshape(size, count, *poses.shape)
        for element in range(size):
            changed[element, :, label, element] = values[element]
        images = self(changed.reshape(-1, *poses.shape), label)
        return images.reshape(size, count, *images.shape[1:])

    def layers(self) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """Returns kernels, in 16 bits, and biases, for the poses of the classes seen alone.

        None: the decoder has other layers than dense ones, or is too large for a page.
        """
        decoder: Any = self.results.checkpoint.model.decoder
        if type(decoder) is not Decoder:
            return None
        kernels = [np.asarray(layer.kernel[...], np.float16) for layer in decoder.layers]
        first = kernels[0].reshape(self.results.dataset.num_classes, -1, kernels[0].shape[-1])
        kernels[0] = first[self.seen].reshape(-1, first.shape[-1])
        if sum(kernel.nbytes for kernel in kernels) > LARGEST:
            return None
        biases = (np.asarray(layer.bias[...]) for layer in decoder.layers)
        return list(zip(kernels, biases, strict=True))


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
            f" Reconstructions from the true class have a mean squared error of "
            f"{drawing.errors.decoder:.4f} (pixels lie between 0 and 1); the mean of the class's "
            f"other images, in their place, would have {drawing.errors.typical:.4f}."
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

    The image of a class is its first right one. A sentence tells why there are none.
    """
    if drawing is None:
        return "This network has no decoder of class poses."
    strength, correct = drawing.effects.copy(), drawing.results.correct
    by_class = drawing.examples.by_class.values()
    first = [next((place for place in places if correct[place]), None) for places in by_class]
    strength[[place is None for place in first]] = -1
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
