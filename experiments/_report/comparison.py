"""The page of several runs: what differs in their configs, and what came of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Int

from _report import curves, pages
from _report.html import Html, contents, counted, document, join, percent, section, table, tag
from _report.results import Results
from capsjax.data import Dataset
from capsjax.training.config import flatten
from capsjax.training.state import num_parameters

MAX_IMAGES = 24  # on either side of a comparison
SECTIONS = {
    "configs": "What differs",
    "accuracy": "Accuracy",
    "learning": "Learning",
    "mistakes": "Mistakes",
    "commands": "Reproduce",
}


class Group(NamedTuple):
    """Runs of one config, which differ in their seeds alone."""

    runs: list[Results]  # all on the same images

    @property
    def name(self) -> str:
        """The name that people see."""
        first, *others = self.runs
        return f"{first.name} and {counted(len(others), 'more seed')}" if others else first.name

    @property
    def config(self) -> dict[str, Any]:
        """The config without its seed."""
        values = flatten(self.runs[0].checkpoint.config)
        return {key: value for key, value in values.items() if key != "seed"}

    @property
    def wrong(self) -> Bool[np.ndarray, "n"]:
        """The images that more than half of the runs get wrong."""
        return np.mean([~run.correct for run in self.runs], axis=0) > 0.5

    @property
    def mistaken_for(self) -> Int[np.ndarray, "n"]:
        """The wrong class that most runs give for each image."""
        dataset = self.runs[0].dataset
        predicted = np.array([run.predicted for run in self.runs])
        votes = (predicted[..., None] == np.arange(dataset.num_classes)).sum(0)
        np.put_along_axis(votes, dataset.labels[:, None].astype(int), -1, axis=1)
        return votes.argmax(-1)


def page(runs: Sequence[Results], versions: dict[str, str], lines: Sequence[str]) -> str:
    """Writes one HTML document by the command `lines`, which refers to nothing outside itself."""
    first, groups = runs[0].dataset, grouped(runs)
    for run in runs:
        if not _same_images(first, run.dataset):
            raise ValueError(
                f"{runs[0].name} and {run.name} were evaluated on different images ({first.name} "
                f"and {run.dataset.name}): name one data set that fits all runs with --dataset=NAME"
            )
    # Seeds of a single config are compared with each other.
    columns = groups if len(groups) > 1 else [Group([run]) for run in runs]
    title = f"{len(runs)} runs on {first.name}"
    images = f"{len(first.labels):,} images of the {first.split} split."
    written = f"Page written with {pages.said(versions)}."
    body = [
        tag("header", tag("h1", title), tag("p", f"{images} {written}")),
        contents(SECTIONS),
        tag(
            "main",
            _configs(groups),
            _accuracy(groups),
            _learning(groups),
            _mistakes(columns),
            pages.commands(lines, "The runs are only evaluated."),
        ),
    ]
    return document(title, join(body), ("elements.js", "curves.js"))


def _same_images(a: Dataset, b: Dataset) -> bool:
    # Files of a folder are the same images, at whatever size and cut each network sees them.
    files = a.name == b.name and a.name.startswith("folder:")
    same = a.class_names == b.class_names and np.array_equal(a.labels, b.labels)
    return same and (files or np.array_equal(a.images, b.images))


def grouped(runs: Sequence[Results]) -> list[Group]:
    """Groups the runs by config, in the order of the first of each."""
    groups: list[Group] = []
    for alone in (Group([run]) for run in runs):
        same = next((group for group in groups if group.config == alone.config), None)
        if same is None:
            groups.append(alone)
        else:
            same.runs.extend(alone.runs)
    return groups


def _section(name: str, text: str, groups: Sequence[Group], seeds: str, *body: Html) -> Html:
    """Returns a section, whose text ends with `seeds` where a group has several."""
    said = f"{text} {seeds}" if any(len(group.runs) > 1 for group in groups) else text
    return section(name, SECTIONS[name], said, join(body))


def _configs(groups: Sequence[Group]) -> Html:
    title = SECTIONS["configs"]
    if len(groups) == 1:
        return section("configs", title, "These runs have one config and differ in their seed.")
    configs = [group.config for group in groups]
    rows = []
    for key in dict.fromkeys(key for config in configs for key in config):
        values = [str(config.get(key, "–")) for config in configs]
        if len(set(values)) > 1:
            rows.append([key, *values])
    text = "Config values that differ between the runs, apart from the seed."
    return section("configs", title, text, table(["", *(group.name for group in groups)], rows))


def _accuracy(groups: Sequence[Group]) -> Html:
    rows = []
    for group in groups:
        if len(group.runs) > 1:
            shares = [100 * run.summary.accuracy for run in group.runs]
            spread = f"{np.mean(shares):.2f} ± {np.std(shares, ddof=1):.2f} %"
            rows.append([group.name, spread, "", "", "", f"{len(shares)} seeds"])
        for run in group.runs:
            low, high = run.summary.interval
            share, interval = percent(run.summary.accuracy), f"{100 * low:.1f} to {percent(high)}"
            parameters = f"{num_parameters(run.checkpoint.model):,}"
            step, seed = f"{run.checkpoint.step:,}", str(run.checkpoint.config.seed)
            rows.append([run.name, share, interval, parameters, step, seed])
    text = "Each accuracy with its 95 % interval (Wilson's), for other images of the same kind."
    seeds = "Several seeds: the mean and the standard deviation (over n − 1)."
    heads = ["", "accuracy", "95 % interval", "parameters", "step", "seed"]
    return _section("accuracy", text, groups, seeds, table(heads, rows))


def _learning(groups: Sequence[Group]) -> Html:
    held_out = all(run.history.validation_accuracy() for group in groups for run in group.runs)
    kind = "validation" if held_out else "training"

    listed = ", ".join(group.name for group in groups)
    losses, shares = [], []
    for i, group in enumerate(groups):
        histories = [run.history for run in group.runs]
        losses.append(_line(group, [each.training("loss") for each in histories], i))
        values = [each.training("accuracy") for each in histories]
        if held_out:
            values = [each.validation_accuracy() for each in histories]
        shares.append(_line(group, values, i)._replace(marked=held_out))
    loss = curves.losses(losses, f"Training loss of {listed}")
    accuracy = curves.accuracies(shares, f"{kind.capitalize()} accuracy of {listed}")
    plots = tag("div", loss, accuracy, class_="plots")
    seeds = "For several seeds: the mean, with a band of one standard deviation."
    return _section("learning", f"Training loss and {kind} accuracy.", groups, seeds, plots)


def _line(group: Group, by_run: list[dict[int, float]], colour: int) -> curves.Line:
    """Returns the mean over the runs, at the steps that all of them have."""
    steps = sorted(set.intersection(*map(set, by_run)))
    table = np.array([[of_run[step] for of_run in by_run] for step in steps])
    deviations = None
    if len(by_run) > 1:
        deviations = dict(zip(steps, table.std(1, ddof=1).tolist(), strict=True))
    means = dict(zip(steps, table.mean(1).tolist(), strict=True))
    return curves.Line(group.name, means, deviations, colour)


def _mistakes(columns: Sequence[Group]) -> Html:
    """Compares each run with the first."""
    base, *others = columns
    text = "Images that one run gets wrong and the other gets right."
    seeds = "For several seeds: images that more than half of them get wrong."
    return _section("mistakes", text, columns, seeds, *(_versus(base, other) for other in others))


def _versus(base: Group, other: Group) -> Html:
    ours, theirs = base.wrong & ~other.wrong, other.wrong & ~base.wrong
    both = int((base.wrong & other.wrong).sum())
    num = int(ours.sum()), int(theirs.sum())
    said = f"{counted(both, 'image is', 'images are')} wrong in both."
    if sum(num):
        p = scipy.stats.binomtest(num[0], sum(num)).pvalue
        said += f" McNemar's exact test of {num[0]:,} against {num[1]:,}: p = {p:.2g}."
    sides = tag("div", _side(base, ours), _side(other, theirs), class_="versus")
    return join([tag("h3", f"{base.name} and {other.name}"), tag("p", said), sides])


def _side(group: Group, places: Bool[np.ndarray, "n"]) -> Html:
    """Returns the images that `group` alone gets wrong, the surest first."""
    lead = np.mean([run.lead for run in group.runs], axis=0)
    wrong, data = np.flatnonzero(places), group.runs[0].dataset
    cards = []
    for place in wrong[np.argsort(-lead[wrong], kind="stable")][:MAX_IMAGES].tolist():
        labels = data.labels[place], group.mistaken_for[place]
        cards.append(pages.card(place, *(data.class_names[k] for k in labels), data.images[place]))
    part = f"{len(cards)} of {len(wrong):,}" if len(cards) < len(wrong) else str(len(wrong))
    heading = tag("h4", f"Wrong in {group.name} alone: {part}")
    return tag("div", heading, tag("div", *(cards or [tag("p", "None.")]), class_="gallery"))
