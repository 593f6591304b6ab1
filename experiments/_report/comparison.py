"""The page of several runs: what differs in their configs, and what came of it."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Int

from _report import curves
from _report.html import contents, counted, document, percent, section, table
from _report.numbers import commands
from _report.pictures import picture
from _report.results import Results
from capsjax.training.config import flatten
from capsjax.training.state import num_parameters, split

MAX_IMAGES = 24  # on either side of a comparison
NONE = "–"
SECTIONS = {
    "configs": "What differs",
    "accuracy": "Accuracy",
    "learning": "Learning",
    "mistakes": "Mistakes",
    "commands": "Reproduce",
}


class Group(NamedTuple):
    """Runs of one config, which differ in their seeds alone.

    Attributes:
      name: for people.
      names: of the runs, their directories.
      runs: what they answered, all on the same images.
    """

    name: str
    names: list[str]
    runs: list[Results]

    @property
    def wrong(self) -> Bool[np.ndarray, "n"]:
        """The images that more than half of the runs get wrong."""
        return np.mean([~run.correct for run in self.runs], axis=0) > 0.5

    @property
    def mistaken_for(self) -> Int[np.ndarray, "n"]:
        """The wrong class that most runs give for each image."""
        dataset = self.runs[0].dataset
        said = np.array([run.predicted for run in self.runs])
        votes = (said[..., None] == np.arange(dataset.num_classes)).sum(0)
        np.put_along_axis(votes, dataset.labels[:, None].astype(int), -1, axis=1)
        return votes.argmax(-1)


def page(
    names: Sequence[str], runs: Sequence[Results], versions: dict[str, str], lines: Sequence[str]
) -> str:
    """One HTML document that refers to nothing outside itself.

    Args:
      names: of the runs, their directories.
      runs: what they answered.
      versions: of what wrote the page.
      lines: the command that does.

    Raises:
      ValueError: they were evaluated on different images.
    """
    first = runs[0].dataset
    for name, run in zip(names, runs, strict=True):
        other = run.dataset
        if other.class_names != first.class_names or not (
            np.array_equal(other.images, first.images)
            and np.array_equal(other.labels, first.labels)
        ):
            what = "classes" if other.class_names != first.class_names else "images"
            raise ValueError(
                f"{names[0]} and {name} were evaluated on different {what} ({first.name} and "
                f"{other.name}): name one data set that fits all runs with --dataset=NAME"
            )
    groups = grouped(names, runs)
    # Seeds of a single config are compared with each other.
    columns = (
        groups
        if len(groups) > 1
        else [Group(n, [n], [r]) for n, r in zip(names, runs, strict=True)]
    )
    written = ", ".join(f"{name} {number}" for name, number in versions.items())
    title = f"{len(runs)} runs on {first.name}"
    body = "\n".join(
        [
            f"<header><h1>{escape(title)}</h1><p>{len(first.labels):,} images of the "
            f"{escape(first.split)} split. Page written with {escape(written)}.</p></header>",
            contents(SECTIONS),
            "<main>",
            _configs(groups),
            _accuracy(groups),
            _learning(groups),
            _mistakes(columns),
            commands(lines, "The runs are only evaluated."),
            "</main>",
        ]
    )
    return document(escape(title), body, ("elements.js", "curves.js"))


def grouped(names: Sequence[str], runs: Sequence[Results]) -> list[Group]:
    """The runs by config, in the order of the first of each."""
    keys = [_values(run) for run in runs]
    order = {str(key): place for place, key in reversed(list(enumerate(keys)))}
    places = sorted(range(len(runs)), key=lambda i: (order[str(keys[i])], i))
    found = []
    for _, group in groupby(places, key=lambda i: order[str(keys[i])]):
        chosen = list(group)
        own = [names[i] for i in chosen]
        more = f" and {counted(len(own) - 1, 'more seed')}" if len(own) > 1 else ""
        name = f"{own[0]}{more}"
        found.append(Group(name, own, [runs[i] for i in chosen]))
    return found


def _values(run: Results) -> dict[str, Any]:
    """The config without the seed."""
    return {k: v for k, v in flatten(run.checkpoint.config).items() if k != "seed"}


def _configs(groups: Sequence[Group]) -> str:
    title = SECTIONS["configs"]
    found = [_values(group.runs[0]) for group in groups]
    if len(groups) == 1:
        return section("configs", title, "These runs have one config and differ in their seed.")
    keys = dict.fromkeys(key for values in found for key in values)
    differing = [k for k in keys if len({str(values.get(k, NONE)) for values in found}) > 1]
    rows = [[escape(key), *(str(values.get(key, NONE)) for values in found)] for key in differing]
    return section(
        "configs",
        title,
        "The values of the configs that are not the same, apart from the seed.",
        table(["", *(group.name for group in groups)], rows),
    )


def _accuracy(groups: Sequence[Group]) -> str:
    rows = []
    for group in groups:
        if len(group.runs) > 1:
            shares = [100 * run.summary.accuracy for run in group.runs]
            seeds = f"{len(shares)} seeds"
            spread = f"{np.mean(shares):.2f} ± {np.std(shares, ddof=1):.2f} %"
            rows.append([escape(group.name), spread, "", "", "", seeds])
        for name, run in zip(group.names, group.runs, strict=True):
            low, high = run.summary.interval
            _, params, _ = split(run.checkpoint.model)
            rows.append(
                [
                    escape(name),
                    percent(run.summary.accuracy),
                    f"{100 * low:.1f} to {percent(high)}",
                    f"{num_parameters(params):,}",
                    f"{run.checkpoint.step:,}",
                    str(run.checkpoint.config.seed),
                ]
            )
    text = "Each accuracy with its 95 % interval (Wilson's), for other images of the same kind."
    if any(len(group.runs) > 1 for group in groups):
        text += (
            " Several seeds have their mean and standard deviation (over n − 1), which is how much "
            "the seed alone changes."
        )
    heads = ["", "accuracy", "95 % interval", "parameters", "step", "seed"]
    return section("accuracy", SECTIONS["accuracy"], text, table(heads, rows))


def _learning(groups: Sequence[Group]) -> str:
    losses = [
        _line(group, i, [curves.series(run.history, "loss") for run in group.runs])
        for i, group in enumerate(groups)
    ]
    held_out = all(run.history.validation_accuracy() for group in groups for run in group.runs)
    accuracies = [
        _line(
            group,
            i,
            [
                run.history.validation_accuracy()
                if held_out
                else curves.series(run.history, "accuracy")
                for run in group.runs
            ],
            marked=held_out,
        )
        for i, group in enumerate(groups)
    ]
    kind = "validation" if held_out else "training"
    listed = ", ".join(group.name for group in groups)
    plots = curves.losses_plot(losses, f"Training loss of {listed}") + curves.accuracies_plot(
        accuracies, f"{kind.capitalize()} accuracy of {listed}"
    )
    text = f"Training loss and {kind} accuracy."
    if any(len(group.runs) > 1 for group in groups):
        text += " Several seeds are shown by their mean, in a band of one standard deviation."
    return section("learning", SECTIONS["learning"], text, f'<div class="plots">{plots}</div>')


def _line(
    group: Group, colour: int, found: list[dict[int, float]], *, marked: bool = False
) -> curves.Line:
    """The mean over the runs, at the steps that all of them have."""
    steps = sorted(set.intersection(*map(set, found)))
    values = np.array([[one[step] for one in found] for step in steps])
    deviations = None
    if len(found) > 1:
        deviations = dict(zip(steps, values.std(1, ddof=1).tolist(), strict=True))
    means = dict(zip(steps, values.mean(1).tolist(), strict=True))
    return curves.Line(group.name, means, deviations, colour, marked)


def _mistakes(columns: Sequence[Group]) -> str:
    """Each against the first."""
    base, *others = columns
    text = "What one gets wrong and the other does not: where they differ, for better or worse."
    if any(len(column.runs) > 1 for column in columns):
        text += " Several seeds get an image wrong when more than half of them do."
    return section(
        "mistakes", SECTIONS["mistakes"], text, "".join(_versus(base, other) for other in others)
    )


def _versus(base: Group, other: Group) -> str:
    ours, theirs = base.wrong & ~other.wrong, other.wrong & ~base.wrong
    both = int((base.wrong & other.wrong).sum())
    num = int(ours.sum()), int(theirs.sum())
    said = f"{counted(both, 'image is', 'images are')} wrong in both."
    if sum(num):
        p = scipy.stats.binomtest(num[0], sum(num)).pvalue
        said += f" McNemar's exact test of {num[0]:,} against {num[1]:,}: p = {p:.2g}."
    sides = _side(base, other, ours) + _side(other, base, theirs)
    return (
        f"<h3>{escape(base.name)} and {escape(other.name)}</h3><p>{escape(said)}</p>"
        f'<div class="versus">{sides}</div>'
    )


def _side(one: Group, other: Group, places: Bool[np.ndarray, "n"]) -> str:
    """The images that `one` gets wrong and `other` does not, the surest first."""
    lead = np.mean([run.lead for run in one.runs], axis=0)
    found = np.flatnonzero(places)
    shown = found[np.argsort(-lead[found], kind="stable")][:MAX_IMAGES]
    figures = "".join(_figure(one, int(i)) for i in shown) or "<p>None.</p>"
    part = f"{len(shown)} of {len(found):,}" if len(shown) < len(found) else str(len(found))
    return (
        f"<div><h4>Wrong in {escape(one.name)} alone: {part}</h4>"
        f'<div class="gallery">{figures}</div></div>'
    )


def _figure(one: Group, place: int) -> str:
    dataset = one.runs[0].dataset
    true, said = (dataset.class_names[k] for k in (dataset.labels[place], one.mistaken_for[place]))
    alt = escape(f"Image {place}, class {true}, taken for {said}")
    return (
        f'<figure><img src="{picture(dataset.images[place])}" alt="{alt}"><figcaption>'
        f"<b>{escape(true)}</b> taken for <b>{escape(said)}</b> <small>image {place}</small>"
        "</figcaption></figure>"
    )
