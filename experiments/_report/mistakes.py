"""The section of wrong answers."""

from collections import Counter

import numpy as np
from jaxtyping import Int

from _report.html import Html, counted, image, section, tag
from _report.results import MAX_MISTAKES, Results

MORE_MISTAKES = 108
MAX_BARS = 10


def mistakes(results: Results) -> Html:
    """Returns the surest wrong answers, and further ones of all kinds."""
    worst = results.worst_mistakes()
    if not len(worst):
        text = "There are none: every image is classified correctly."
        return section("mistakes", "Mistakes", text)
    first, more = worst[:MAX_MISTAKES], _of_all_kinds(results, worst[MAX_MISTAKES:])
    scale = max(1.0, float(results.scores[worst].max()))
    cards, rest = (
        tag("div", *(_card(results, int(i), scale) for i in places), class_="mistakes")
        for places in (first, more)
    )
    text = (
        f"{len(first) + len(more)} of {counted(len(worst), 'wrong answer')}; those in which the "
        "wrong class leads most come first. The bars are the class scores (for a CapsNet, the "
        "lengths of the class capsules). Blue: the true class. Orange: the predicted one."
    )
    body = tag("div", id="filter", hidden=True) + cards
    if len(more):
        body += tag("details", tag("summary", f"{len(more)} more"), rest, id="more")
    return section("mistakes", "Mistakes", text, body)


def _of_all_kinds(results: Results, worst: Int[np.ndarray, "n"]) -> Int[np.ndarray, "m"]:
    """Chooses at most `MORE_MISTAKES`, from as many cells of the confusion matrix as possible."""
    seen: Counter[tuple[str, str]] = Counter()
    rank = []
    for place in worst.tolist():
        kind = results.named(place)
        rank.append(seen[kind])
        seen[kind] += 1
    return worst[np.sort(np.argsort(rank, kind="stable")[:MORE_MISTAKES])]


def card(
    place: int, true: str, wrong: str, pixels: np.ndarray, *more: Html, **data: object
) -> Html:
    """Returns an image and for what it is taken."""
    shown = image(pixels, f"Image {place}, class {true}, taken for {wrong}")
    number = tag("small", f"image {place}")
    caption = tag("figcaption", tag("b", true), " taken for ", tag("b", wrong), " ", number)
    return tag("figure", shown, caption, *more, **data)


def _card(results: Results, place: int, scale: float) -> Html:
    names, scores = results.dataset.class_names, results.scores[place]
    true, predicted = int(results.dataset.labels[place]), int(results.predicted[place])
    shown = np.argsort(-scores, kind="stable")[:MAX_BARS].tolist()
    if true not in shown:
        shown[-1] = true
    bars = []
    for k in sorted(shown):
        width = f"width:{100 * max(float(scores[k]), 0.0) / scale:.1f}%"
        track = tag("span", tag("span", class_="bar", style=width), class_="track")
        kind = "true" if k == true else "predicted" if k == predicted else "other"
        name = tag("span", names[k], class_="name")
        bars.append(tag("li", name, track, f"{scores[k]:.2f}", class_=kind))
    data = {"data_place": place, "data_true": true, "data_predicted": predicted}
    data["data_lead"] = f"{results.lead[place]:.4f}"
    pixels = results.dataset.images[place]
    listed = tag("ol", *bars, class_="bars")
    return card(place, *results.named(place), pixels, listed, **data)
