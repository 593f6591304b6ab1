"""The sections of numbers: what was trained, how it went, how good it is."""

from collections.abc import Iterable, Mapping

import ml_collections

from _report import curves
from _report.html import Html, counted, percent, section, tag
from _report.results import Results
from capsjax.training.config import flatten
from capsjax.training.state import num_parameters, split

LONG_NAME = 4


def said(versions: Mapping[str, str]) -> str:
    """Writes the versions of the software."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def header(results: Results, versions: dict[str, str]) -> Html:
    """Says what was trained, and how good it is."""
    checkpoint, dataset, summary = results.checkpoint, results.dataset, results.summary
    config, step = checkpoint.config, checkpoint.step
    validation = results.history.validation_accuracy().get(step)
    held_out = "" if validation is None else f", validation accuracy {percent(validation)}"
    facts = {
        "Model": config.model.name,
        "Parameters": f"{num_parameters(split(checkpoint.model)[1]):,}",
        "Trained on": config.data.name,
        "Images": "×".join(map(str, config.task.input_shape)),
        "Checkpoint": f"step {step:,}{held_out}",
        "Epochs": f"{results.history.records[-1]['epoch']} of {config.training.epochs}",
        "Seed": str(config.seed),
        "Versions": said(versions),
    }
    listed = [tag("div", tag("dt", key), tag("dd", value)) for key, value in facts.items()]
    right, (low, high) = int(results.correct.sum()), summary.interval
    interval = f"95 % interval {100 * low:.1f} to {percent(high)}"
    share = tag("strong", percent(summary.accuracy)), f" {dataset.split} accuracy"
    return tag(
        "header",
        tag("h1", f"{config.model.name} on {dataset.name}"),
        tag("p", *share, class_="accuracy"),
        tag("p", f"{right:,} of {len(dataset.labels):,} images right; {interval}."),
        tag("dl", *listed, class_="facts"),
    )


def learning(results: Results) -> Html:
    """Shows loss and accuracy over the run."""
    step, history = results.checkpoint.step, results.history
    losses, shares = (curves.series(history, name) for name in ("loss", "accuracy"))
    validation = history.validation_accuracy()
    first, *_, last = [*losses.values()] * 2
    alt = f"Training loss, from {first:.3g} to {last:.3g} in {max(losses):,} steps"
    plots = curves.losses([curves.Line("train", losses)], alt, step)
    alt = f"Training accuracy, {[*shares.values()][-1]:.1%} at the end"
    lines = [curves.Line("train", shares)]
    if validation:
        alt += f", and validation accuracy, {max(validation.values()):.1%} at best"
        lines.append(curves.Line("validation", validation, colour=1, marked=True))
    plots += curves.accuracies(lines, alt, step)
    # The last record of an epoch may cover fewer steps.
    steps = {record["steps"] for record in history.records if record["split"] == "train"}
    at_most = "" if len(steps) == 1 else "at most "
    text = (
        f"Training values are means over {at_most}{counted(max(steps), 'step')}, on images as "
        "training draws them and while the network changes. "
    )
    if validation:
        text += "Validation is measured after each epoch on images held out of the training split. "
    text += "The dotted line is the checkpoint shown on this page."
    return section("learning", "Learning", text, tag("div", Html(plots), class_="plots"))


def confusion(results: Results) -> Html:
    """Shows the counts by true and predicted class."""
    names, counts = results.dataset.class_names, results.summary.confusion
    # Long names stand upright, so that the columns stay narrow.
    kind = "long" if max(map(len, names)) > LONG_NAME else None
    head = [tag("th", name, scope="col", class_=kind) for name in names]
    rows = []
    for i, name in enumerate(names):
        cells = [_cell(int(n), n / max(counts[i].sum(), 1), i, j) for j, n in enumerate(counts[i])]
        share = percent(results.summary.per_class[i]) if counts[i].any() else "–"
        right = tag("td", share, class_="share")
        rows.append(tag("tr", tag("th", name, scope="row"), *cells, right))
    parts = tag("thead", tag("tr", tag("td"), *head, tag("th", "right", scope="col")))
    shown = tag("table", parts, tag("tbody", *rows), class_="confusion")
    text = (
        "Number of images by true class (rows) and predicted class (columns). On the right: the "
        "fraction of each class that is correct."
    )
    body = tag("div", shown, class_="scroll") + tag("div", id="cell", hidden=True)
    return section("confusion", "Confusion matrix", text, body)


def _cell(count: int, share: float, true: int, predicted: int) -> Html:
    right = true == predicted
    if not count:
        return tag("td", "0", class_="none") if right else tag("td")
    heat = f"--heat:{share**0.5:.2f}"  # by the square root: one mistake in a hundred is seen
    places = {"data_true": true, "data_predicted": predicted}
    return tag("td", str(count), class_="right" if right else "wrong", style=heat, **places)


def settings(config: ml_collections.ConfigDict) -> Html:
    """Shows the whole config."""
    rows = [
        tag("tr", tag("th", key, scope="row"), tag("td", str(value)))
        for key, value in flatten(config).items()
    ]
    shown = tag("table", tag("tbody", *rows), class_="config")
    body = tag("details", tag("summary", "Show"), tag("div", shown, class_="scroll", tabindex=0))
    text = "Everything that the run depends on, as the checkpoint holds it."
    return section("config", "Config", text, body)


def commands(lines: Iterable[str], note: str) -> Html:
    """Shows the commands that repeat all this; `note` is the last sentence above them."""
    text = f"In a clone of capsjax, with this page's versions. {note}"
    body = tag("pre", "\n".join(lines), class_="scroll", tabindex=0)
    return section("commands", "Reproduce", text, body)
