"""The section in which a pose can be edited, and the data that its script reads."""

import base64
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from jaxtyping import Num

from _report.couplings import Couplings, couplings
from _report.decoder import Drawing
from _report.html import Html, counted, picture, section, tag
from _report.results import MAX_MISTAKES, Examples, Results

MAPS = 1_200_000  # bytes of coupling maps


def chosen(results: Results, examples: Examples) -> list[int]:
    """Lists images that can be opened: the first of each class, the second, …, the mistakes."""
    rounds = chain.from_iterable(zip_longest(*examples.by_class.values()))
    first = [place for place in rounds if place is not None]
    worst = results.worst_mistakes()[:MAX_MISTAKES]
    return list(dict.fromkeys([*first, *worst[np.isin(worst, examples.places)].tolist()]))


def explorer(
    results: Results, examples: Examples, drawing: Drawing | None
) -> tuple[Html, dict[str, Any]]:
    """Writes the section and its script's data."""
    dataset, places = results.dataset, chosen(results, examples)
    maps = couplings(results.checkpoint.model, results.checkpoint.config, dataset.images[places])
    said: list[str] = []
    body = Html()
    data: dict[str, Any] = {
        "classes": list(dataset.class_names),
        "shown": list(examples.by_class),
        "side": dataset.images.shape[1:3],
        "images": [
            {
                "place": place,
                "label": int(dataset.labels[place]),
                "predicted": int(results.predicted[place]),
                "picture": picture(dataset.images[place]),
            }
            for place in places
        ],
    }
    layers = drawing.layers() if drawing else None
    if layers is None:
        lacks = "no class poses" if examples.poses is None else "no decoder"
        if drawing:
            lacks = "a decoder of a kind or size that does not fit into this page"
        said.append(f"This network has {lacks}, so there are no poses to move.")
        if not isinstance(maps, str):
            said.append("Its couplings are shown alone.")
    else:
        said.append(
            "Edit the pose of a class capsule: the sliders move its elements, in standard "
            "deviations of the data, and the decoder draws the result."
        )
        ours, mean = drawing.errors
        if ours >= mean:
            text = (
                f"The decoder is undertrained: its mean squared error is {ours:.4f} (pixels lie "
                f"between 0 and 1); the mean of the class's other images would have {mean:.4f}."
            )
            body = tag("p", text, class_="warning")
        data |= _poses(drawing, layers, places)
    if left := dataset.num_classes - len(examples.by_class):
        said.append(f"The {counted(left, 'other class', 'other classes')} cannot be chosen here.")
    if isinstance(maps, str):
        said.append(maps)
    else:
        data["couplings"] = _maps(maps, list(examples.by_class), dataset.num_classes)
    if "poses" in data or "couplings" in data:
        words = "The explorer needs JavaScript. The sections below show the same in pictures."
        body = Html(body + tag("noscript", tag("p", words)) + tag("div", id="tool", hidden=True))
    return section("explorer", "Explorer", " ".join(said), body), data


def _poses(drawing: Drawing, layers: list[Any], places: Sequence[int]) -> dict[str, Any]:
    """Returns poses, their spread, and the decoder."""
    every = drawing.examples.poses
    # The mean of all class poses over the images of each class, to be chosen like an image.
    typical = np.stack([every[drawing.labels == label].mean(0) for label in drawing.shown])
    poses = every[drawing.examples.rows(places)]
    return {
        "shape": drawing.results.dataset.images.shape[1:],
        "conditional": drawing.conditional,
        "seen": drawing.seen,
        "size": poses.shape[-1],
        "typical": _encoded(typical[:, drawing.seen], np.float32),
        "poses": _encoded(poses[:, drawing.seen], np.float32),
        "means": _encoded(drawing.means, np.float32),
        "deviations": _encoded(drawing.deviations, np.float32),
        "effects": _encoded(drawing.effects, np.float32),
        "decoder": [
            {"kernel": _encoded(kernel, np.float16), "bias": _encoded(bias, np.float32)}
            for kernel, bias in layers
        ],
    }


def _maps(maps: Couplings, shown: list[int], num_classes: int) -> dict[str, Any]:
    """Returns couplings in 2¹⁶ steps between the least and the greatest."""
    room = max(1, MAPS // (2 * maps.means[:, 0][..., shown].size))
    values = maps.means[:, :room][..., shown]
    low, high = float(values.min()), float(values.max())
    scaled = np.round(65535 * (values - low) / max(high - low, 1e-9))
    return {
        "images": values.shape[1],
        "iterations": maps.iterations,
        "layer": maps.layer,
        "uniform": 1 / num_classes,
        "rows": maps.rows._asdict(),
        "columns": maps.columns._asdict(),
        "low": low,
        "high": high,
        "steps": _encoded(scaled, np.uint16),
    }


def _encoded(values: Num[np.ndarray, "..."], dtype: type) -> str:
    """Returns little-endian numbers in base64."""
    little = np.dtype(dtype).newbyteorder("<")
    return base64.b64encode(np.ascontiguousarray(values, little).tobytes()).decode()
