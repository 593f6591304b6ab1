"""The section of wrong answers."""

from html import escape

import numpy as np

from _report.html import section
from _report.pictures import picture
from _report.results import Results

MAX_MISTAKES = 12
MAX_BARS = 10


def mistakes(results: Results) -> str:
    """The surest wrong answers."""
    title = "Worst mistakes"
    wrong = np.flatnonzero(~results.right)
    if not len(wrong):
        return section("mistakes", title, "There are none: every image is classified right.")
    rows = np.arange(len(results.scores))
    lead = results.scores.max(-1) - results.scores[rows, results.dataset.labels]
    worst = wrong[np.argsort(-lead[wrong], kind="stable")][:MAX_MISTAKES]
    scale = max(1.0, float(results.scores[worst].max()))
    cards = "".join(_card(results, int(i), scale) for i in worst)
    return section(
        "mistakes",
        title,
        f"{len(worst)} of {len(wrong):,} wrong answers, those first in which the wrong class leads "
        "most. The bars are the class scores (for a CapsNet, the lengths of the class capsules): "
        "blue the true class, orange the predicted one.",
        f'<div class="mistakes">{cards}</div>',
    )


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
        f'<figure><img src="{picture(results.dataset.images[index])}" alt="{alt}"><figcaption>'
        f"<b>{escape(names[true])}</b> taken for <b>{escape(names[predicted])}</b> "
        f'<small>image {index}</small></figcaption><ol class="bars">{bars}</ol></figure>'
    )
