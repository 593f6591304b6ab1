"""The section of wrong answers."""

from collections import Counter
from html import escape

import numpy as np
from jaxtyping import Int

from _report.html import counted, section
from _report.pictures import picture
from _report.results import MAX_MISTAKES, Results

MORE_MISTAKES = 108
MAX_BARS = 10


def mistakes(results: Results) -> str:
    """The surest wrong answers, and further ones of all kinds."""
    title = "Mistakes"
    worst = results.worst_mistakes()
    if not len(worst):
        return section("mistakes", title, "There are none: every image is classified correctly.")
    first, more = worst[:MAX_MISTAKES], _of_all_kinds(results, worst[MAX_MISTAKES:])
    scale = max(1.0, float(results.scores[worst].max()))
    cards, rest = (
        f'<div class="mistakes">{"".join(_card(results, int(i), scale) for i in found)}</div>'
        for found in (first, more)
    )
    num = len(first) + len(more)
    text = (
        f"{num} of {counted(len(worst), 'wrong answer')}, beginning with those in which the wrong "
        "class leads most. "
        "The bars are the class scores (for a CapsNet, the lengths of the class capsules): blue "
        "the true class, orange the predicted one."
    )
    body = f'<div id="filter" hidden></div>{cards}'
    if len(more):
        body += f'<details id="more"><summary>{len(more)} more</summary>{rest}</details>'
    return section("mistakes", title, text, body)


def _of_all_kinds(results: Results, worst: Int[np.ndarray, "n"]) -> Int[np.ndarray, "m"]:
    """At most `MORE_MISTAKES`, of as many cells of the confusion matrix as there is room for."""
    seen: Counter[tuple[int, int]] = Counter()
    rank = []
    for i in worst.tolist():
        kind = int(results.dataset.labels[i]), int(results.predicted[i])
        rank.append(seen[kind])
        seen[kind] += 1
    kept = np.sort(np.argsort(rank, kind="stable")[:MORE_MISTAKES])
    return worst[kept]


def _card(results: Results, index: int, scale: float) -> str:
    names, scores = results.dataset.class_names, results.scores[index]
    true, predicted = int(results.dataset.labels[index]), int(results.predicted[index])
    shown = np.argsort(-scores, kind="stable")[:MAX_BARS].tolist()
    if true not in shown:
        shown[-1] = true
    bars = "".join(
        f'<li class="{"true" if k == true else "predicted" if k == predicted else "other"}">'
        f'<span class="name">{escape(names[k])}</span><span class="track">'
        f'<span class="bar" style="width:{100 * max(float(scores[k]), 0.0) / scale:.1f}%"></span>'
        f"</span>{scores[k]:.2f}</li>"
        for k in sorted(shown)
    )
    alt = escape(f"Image {index}, class {names[true]}, taken for {names[predicted]}")
    return (
        f'<figure data-place="{index}" data-true="{true}" data-predicted="{predicted}" '
        f'data-lead="{results.lead[index]:.4f}">'
        f'<img src="{picture(results.dataset.images[index])}" alt="{alt}"><figcaption>'
        f"<b>{escape(names[true])}</b> taken for <b>{escape(names[predicted])}</b> "
        f'<small>image {index}</small></figcaption><ol class="bars">{bars}</ol></figure>'
    )
