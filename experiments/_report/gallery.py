"""The page of images that a network classified."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from _report.html import counted, document, section
from _report.pictures import picture

if TYPE_CHECKING:
    from predict import Prediction

    from capsjax.runs.checkpoints import Checkpoint


def gallery(
    checkpoint: "Checkpoint", predictions: Sequence["Prediction"], broken: Sequence[str], top: int
) -> str:
    """Each image as the network saw it, by class, with its highest scores."""
    names = checkpoint.config.task.class_names
    by_class: dict[int, list[str]] = {}
    for prediction in predictions:
        figure = _figure(prediction, names, top)
        by_class.setdefault(prediction.best(1)[0], []).append(figure)
    title = f"{counted(len(predictions), 'image')}, {checkpoint.config.model.name}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        *(
            section(
                f"class-{label}",
                names[label],
                counted(len(by_class[label]), "image"),
                f'<div class="gallery">{"".join(by_class[label])}</div>',
            )
            for label in sorted(by_class)
        ),
    ]
    if broken:
        lines = "".join(f"<li>{escape(line)}</li>" for line in broken)
        parts.append(
            section("broken", "Not read", counted(len(broken), "file"), f"<ul>{lines}</ul>")
        )
    return document(escape(title), "\n".join(parts))


def _figure(prediction: "Prediction", names: tuple[str, ...], top: int) -> str:
    said = "<br>".join(
        f"{escape(names[i])} {prediction.scores[i]:.3f}" for i in prediction.best(top)
    )
    hint = "<br>looks inverted" if prediction.looks_inverted else ""
    name = escape(str(prediction.file))
    return (
        f'<figure><img src="{picture(prediction.fitted.pixels)}" alt="{name}">'
        f'<figcaption title="{name}">{escape(prediction.file.name)}<br>{said}{hint}</figcaption>'
        "</figure>"
    )
