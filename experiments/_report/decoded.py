"""The sections of pictures that the decoder makes."""

from html import escape

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from _report.decoder import Drawing
from _report.html import counted, section
from _report.pictures import picture, strip
from _report.results import Examples, Results
from capsjax.evaluation.perturbation import reconstruct_perturbed, symmetric_offsets

PERTURBED_IMAGES = 4


def reconstructions(results: Results, examples: Examples) -> str:
    """Inputs beside what the decoder makes of their class capsule."""
    title, dataset = "Reconstructions", results.dataset
    if examples.reconstruction is None:
        return section("reconstructions", title, "This network has no decoder.")
    rows = []
    for label, places in examples.by_class.items():
        decoded = examples.reconstruction[examples.rows(places)]
        pairs = "".join(_pair(results, *pair) for pair in zip(places, decoded, strict=True))
        name = escape(dataset.class_names[label])
        rows.append(f'<tr><th scope="row">{name}</th><td>{pairs}</td></tr>')
    drawing = Drawing.of(results.checkpoint.model)
    alone = drawing is None or drawing.conditional
    source = "the class capsule with the highest score alone" if alone else "all class capsules"
    text = (
        f"The first images of each class in the {dataset.split} split, and to the right of each "
        f"what the decoder makes of {source}. An arrow names the predicted class where it is wrong."
    )
    left_out = len(np.unique(dataset.labels)) - len(examples.by_class)
    if left_out:
        text += f" {counted(left_out, 'more class is', 'more classes are')} not shown."
    body = f'<table class="pairs"><tbody>{"".join(rows)}</tbody></table>'
    return section("reconstructions", title, text, body)


def _pair(results: Results, index: int, reconstruction: Float[np.ndarray, "h w c"]) -> str:
    names, image = results.dataset.class_names, results.dataset.images[index]
    true, predicted = (names[k] for k in (results.dataset.labels[index], results.predicted[index]))
    arrow = "" if results.correct[index] else f"<figcaption>→ {escape(predicted)}</figcaption>"
    return (
        '<figure class="pair">'
        f'<img src="{picture(image)}" alt="{escape(f"Image {index}, class {true}")}">'
        f'<img src="{picture(reconstruction)}" '
        f'alt="{escape(f"Its reconstruction; predicted class {predicted}")}">'
        f"{arrow}</figure>"
    )


def poses(results: Results, examples: Examples) -> str:
    """Each element of the class capsule's pose moved (Sabour et al. 2017, figure 4)."""
    title, dataset = "What the pose elements mean", results.dataset
    drawing = Drawing.of(results.checkpoint.model)
    if examples.poses is None or examples.reconstruction is None or drawing is None:
        lacks = "class poses" if examples.poses is None else "decoder"
        return section("poses", title, f"This network has no {lacks}.")
    # The first image of each class that is classified correctly.
    firsts = [next((i for i in p if results.correct[i]), None) for p in examples.by_class.values()]
    known = [i for i in firsts if i is not None]
    if not known:
        return section("poses", title, "None of the images above is classified correctly.")
    spread = np.linspace(0, len(known) - 1, min(PERTURBED_IMAGES, len(known))).round().astype(int)
    offsets = symmetric_offsets()
    figures = []
    for index in (known[k] for k in spread):
        label = int(dataset.labels[index])
        pose = examples.poses[examples.rows([index])[0]]
        moved = reconstruct_perturbed(
            drawing.compiled, jnp.asarray(pose), label, offsets, conditional=drawing.conditional
        )
        figures.append(
            _perturbed(dataset.images[index], dataset.class_names[label], moved, offsets)
        )
    return section(
        "poses",
        title,
        "Each row moves one element of the class capsule's pose from "
        f"{_signed(offsets[0])} to {_signed(offsets[-1])} in steps of "
        f"{offsets[1] - offsets[0]:.2f} and decodes the result; the middle column is the "
        "unchanged reconstruction.",
        f'<div class="perturbed">{"".join(figures)}</div>',
    )


def _perturbed(
    image: UInt8[np.ndarray, "h w c"],
    name: str,
    moved: Float[np.ndarray, "d k h w c"],
    offsets: Float[np.ndarray, "k"],
) -> str:
    ends = f"{_signed(offsets[0])} to {_signed(offsets[-1])}"
    rows = "".join(
        f'<tr><th scope="row">{e}</th><td><img src="{strip(row)}" '
        f'alt="{escape(f"Class {name}, element {e} moved from {ends}")}"></td></tr>'
        for e, row in enumerate(moved)
    )
    return (
        f'<figure><figcaption><img src="{picture(image)}" '
        f'alt="{escape(f"An image of class {name}")}">'
        f'Class {escape(name)}</figcaption><table><thead><tr><td></td><th><div class="ends">'
        f"<span>{_signed(offsets[0])}</span><span>0</span><span>{_signed(offsets[-1])}</span></div>"
        f"</th></tr></thead><tbody>{rows}</tbody></table></figure>"
    )


def _signed(offset: float) -> str:
    # A true minus sign; and no sign on what rounds to zero.
    return f"{offset:+.2f}".replace("-", "−") if round(offset, 2) else "0"
