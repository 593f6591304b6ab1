"""The section in which a pose can be edited, and the data that its script reads."""

import base64
from collections.abc import Sequence
from html import escape
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from jaxtyping import Num

from _report import decoder
from _report.codes import Errors, Spread, errors, spread
from _report.couplings import Axis, Couplings, couplings
from _report.html import counted, section
from _report.pictures import picture, sheet
from _report.results import MAX_MISTAKES, Examples, Results

SHEETS = 2_500_000  # characters of pictures made in advance
MAPS = 600_000  # bytes of coupling maps
TITLE = "Explorer"


def chosen(results: Results, examples: Examples) -> list[int]:
    """The images that can be opened: the first of each class, the second, …, the mistakes."""
    rounds = chain.from_iterable(zip_longest(*examples.by_class.values()))
    first = [place for place in rounds if place is not None]
    known = set(examples.places.tolist())
    worst = [i for i in results.worst_mistakes()[:MAX_MISTAKES].tolist() if i in known]
    return list(dict.fromkeys([*first, *worst]))


def pictures(results: Results, places: Sequence[int]) -> list[dict[str, Any]]:
    """The images at `places`, with what they are and what they are taken for."""
    return [
        {
            "place": place,
            "label": int(results.dataset.labels[place]),
            "predicted": int(results.predicted[place]),
            "picture": picture(results.dataset.images[place]),
        }
        for place in places
    ]


def explorer(
    results: Results, examples: Examples, places: Sequence[int]
) -> tuple[str, dict[str, Any]]:
    """The section, and the data for its script.

    Args:
      places: of the images that can be chosen, all of them in `examples`.
    """
    model: Any = results.checkpoint.model
    maps = couplings(model, results.checkpoint.config, results.dataset.images[list(places)])
    drawing = decoder.Drawing.of(model)
    said: list[str] = []
    quality = ""
    data: dict[str, Any] = {
        "classes": list(results.dataset.class_names),
        "shown": list(examples.by_class),
        "side": results.dataset.images.shape[1:3],
    }
    if drawing is None or examples.poses is None:
        lacks = "class poses" if examples.poses is None else "decoder"
        said.append(f"This network has no {lacks}, so there are no poses to move.")
        if not isinstance(maps, str):
            said.append("Its couplings are shown alone.")
    else:
        said.append(
            "Edit the pose of a class capsule: the sliders move its elements, in standard "
            "deviations of the data, and the picture is what the decoder makes of it."
        )
        found = errors(results, examples, drawing)
        quality = _quality(
            found,
            len(examples.places),
            results.dataset.split,
            conditional=drawing.conditional,
        )
        data |= _poses(results, examples, places, drawing)
        if data["decoder"] is None:
            said.append(
                "The decoder is not of a kind or size that fits into this page. Its pictures were "
                "made in advance, at whole standard deviations and for one element at a time: "
                "moving one puts the others back, and there is no way from one pose to another. "
                "The mean poses of classes cannot be chosen."
            )
            if left := len(places) - len(data["samples"]["sheets"]):
                said.append(f"There was no room for {counted(left, 'more image')}.")
    if left := results.dataset.num_classes - len(examples.by_class):
        said.append(f"The {counted(left, 'other class', 'other classes')} cannot be chosen here.")
    if isinstance(maps, str):
        said.append(maps)
    else:
        data["couplings"] = _maps(maps, list(examples.by_class), results.dataset.num_classes)
    if "poses" not in data and "couplings" not in data:
        return section("explorer", TITLE, " ".join(said)), data
    body = quality + (
        "<noscript><p>The explorer needs JavaScript. The sections below show the same in "
        'pictures.</p></noscript><div id="tool" hidden></div>'
    )
    return section("explorer", TITLE, " ".join(said), body), data


def _quality(found: Errors, num: int, split: str, *, conditional: bool) -> str:
    """What the rule says of the decoder, as HTML."""
    kind, than = (
        ("undertrained", "no less than") if found.undertrained else ("trained", "less than")
    )
    text = (
        f"Drawing {counted(num, 'image')} of the {split} split from the poses of "
        f"{'their true classes' if conditional else 'all classes'}, the decoder has a mean squared "
        f"error of {found.decoder:.4f} (pixels lie between 0 and 1), {than} the "
        f"{found.typical:.4f} of the mean image of each class. By this rule the decoder is {kind}."
    )
    return f'<p class="quality {kind}">{escape(text)}</p>'


def _poses(
    results: Results, examples: Examples, places: Sequence[int], drawing: decoder.Drawing
) -> dict[str, Any]:
    """Poses, their spread, and the decoder or what it drew."""
    assert examples.poses is not None
    shown, labels = list(examples.by_class), results.dataset.labels[examples.places]
    own = spread(results, examples)
    classes = results.dataset.num_classes
    seen = shown if drawing.conditional else list(range(classes))
    # The mean of all class poses over the images of each class, to be chosen like an image.
    typical = np.stack([examples.poses[labels == label].mean(0) for label in shown])
    poses = examples.poses[examples.rows(places)]
    effects = [
        decoder.effects(drawing, examples.poses[examples.rows(found)], label, own.deviations[k])
        for k, (label, found) in enumerate(examples.by_class.items())
    ]
    layers = decoder.layers(drawing, shown, own.means, own.deviations, classes)
    data: dict[str, Any] = {
        "shape": results.dataset.images.shape[1:],
        "conditional": drawing.conditional,
        "seen": seen,
        "size": poses.shape[-1],
        "typical": _encoded(typical[:, seen], np.float32),
        "poses": _encoded(poses[:, seen], np.float32),
        "means": _encoded(own.means, np.float32),
        "deviations": _encoded(own.deviations, np.float32),
        "effects": _encoded(np.stack(effects), np.float32),
        "decoder": None,
    }
    if layers is None:
        return data | {"samples": _samples(results, examples, places, drawing, own)}
    return data | {
        "decoder": [
            {
                "kernel": _encoded(layer.kernel, np.float16),
                "bias": _encoded(layer.bias, np.float32),
                "activation": layer.activation,
            }
            for layer in layers
        ]
    }


def _samples(
    results: Results,
    examples: Examples,
    places: Sequence[int],
    drawing: decoder.Drawing,
    own: Spread,
) -> dict[str, Any]:
    """A sheet of pictures for each of the first images, as many as there is room for."""
    assert examples.poses is not None
    sheets, room = [], SHEETS
    for place in places:
        label = int(results.predicted[place])
        if label not in examples.by_class:
            label = int(results.dataset.labels[place])
        k = list(examples.by_class).index(label)
        pose = examples.poses[examples.rows([place])[0]]
        grid = decoder.samples(drawing, pose, label, own.means[k], own.deviations[k])
        made = sheet(grid)
        room -= len(made)
        if room < 0:
            break
        sheets.append({"place": place, "label": label, "picture": made})
    return {"values": decoder.SAMPLES.tolist(), "sheets": sheets}


def _maps(maps: Couplings, shown: list[int], num_classes: int) -> dict[str, Any]:
    """Couplings in 256 steps between the least and the greatest."""
    per_image = maps.means[:, 0][..., shown].size
    room = max(1, MAPS // (per_image * (1 if maps.weighted is None else 2)))

    def steps(values: np.ndarray) -> dict[str, Any]:
        values = values[:, :room][..., shown]
        low, high = float(values.min()), float(values.max())
        scaled = np.round(255 * (values - low) / max(high - low, 1e-9))
        return {"low": low, "high": high, "steps": _encoded(scaled, np.uint8)}

    def axis(found: Axis) -> dict[str, Any]:
        return {"centres": found.centres, "extent": found.extent}

    return {
        "images": min(room, maps.means.shape[1]),
        "iterations": maps.iterations,
        "layer": maps.layer,
        "uniform": 1 / num_classes,
        "rows": axis(maps.rows),
        "columns": axis(maps.columns),
        "means": steps(maps.means),
        "weighted": None if maps.weighted is None else steps(maps.weighted),
    }


def _encoded(values: Num[np.ndarray, "..."], dtype: type) -> str:
    """Little-endian numbers in base64."""
    little = np.dtype(dtype).newbyteorder("<")
    return base64.b64encode(np.ascontiguousarray(values, little).tobytes()).decode()
