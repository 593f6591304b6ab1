"""The papers' figures, from records. All are drawn on white, to stand beside the paper."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from _reproduce.compare import Comparison
from _reproduce.experiment import options_first

Panel = Callable[[Axes, Comparison], None]

_MOST_INSIDE = 6  # lines that are named inside a panel; more are named above it


@options_first
def beside(comparison: Comparison, *panels: Panel) -> Figure:
    """Draws several panels in a row, or one."""
    figure, every = _figure(len(panels))
    for axes, panel in zip(every, panels, strict=True):
        panel(axes, comparison)
    return figure


@options_first
def lines(
    axes: Axes, comparison: Comparison, metric: str, xlabel: str, ylabel: str, *, log: bool = False
) -> None:
    """Draws `metric` against each row's x, a line for each `Row.line`; the paper's dashed."""
    in_paper, cells = False, comparison.cells[metric]
    for number, (line, rows) in enumerate(comparison.lines.items()):
        colour = colormaps["tab10"](number % 10)
        if ours := _estimates(comparison, metric, rows):
            style = {"color": colour, "marker": "o", "markersize": 4, "capsize": 2}
            axes.errorbar(*zip(*ours, strict=True), **style, label=line)
        paper = [(x, cells[name].printed.mean) for name, x in rows.items() if cells[name].printed]
        if paper:
            axes.plot(*zip(*paper, strict=True), "x--", color=colour, alpha=0.6)
            in_paper = True
    if in_paper:
        axes.plot([], [], "x--", color="grey", label="the paper")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # x is a count
    if log:
        axes.set_xscale("log")
    _finish(axes, xlabel, ylabel)


@options_first
def bars(axes: Axes, comparison: Comparison, groups: Sequence[str]) -> None:
    """Draws accuracies on B as bars: groups by x (the place in `groups`), a bar for each line."""
    width = 0.8 / len(comparison.lines)
    for number, (line, rows) in enumerate(comparison.lines.items()):
        if ours := _estimates(comparison, "accuracy", rows):
            places, means, stds = map(np.array, zip(*ours, strict=True))
            places = places + (number + 0.5) * width - 0.4
            axes.bar(places, means, width, yerr=stds, capsize=2, label=line)
    axes.set_xticks(range(len(groups)), groups)
    _finish(axes, "", "accuracy on B, %")


def _estimates(
    comparison: Comparison, metric: str, rows: Mapping[str, float]
) -> list[tuple[float, float, float]]:
    """Returns x, mean and deviation of `metric` for each row none of whose runs diverged."""
    kept = [name for name in rows if name not in comparison.diverged]
    ours = [(rows[name], comparison.cells[metric][name].ours) for name in kept]
    return [(x, own.mean, own.std or 0.0) for x, own in ours if own]


@options_first
def curves_by_line(comparison: Comparison, steps: str, y: str, ylabel: str) -> Figure:
    """Draws a panel of `curves` for each line."""
    return beside(*(curves(steps, y, ylabel, line) for line in comparison.lines))(comparison)


@options_first
def curves(
    axes: Axes, comparison: Comparison, steps: str, y: str, ylabel: str, line: str | None = None
) -> None:
    """Draws the means of series `y` by `steps`, ± deviations, for the rows of one line or all."""
    rows = [*comparison.records]
    if line is not None:
        rows = [*comparison.lines.get(line, {})]
        axes.set_title(line, fontsize=9)
    for number, row in enumerate(rows):
        if found := _series(comparison.records[row], steps, y):
            (x, *_), values = found
            colour = colormaps["viridis"](number / max(1, len(rows) - 1))
            mean, std = values.mean(axis=0), values.std(axis=0)
            axes.plot(x, mean, color=colour, label=row, marker="." if len(mean) < 20 else None)
            axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    _finish(axes, "steps", ylabel)


def trace(axes: Axes, comparison: Comparison) -> None:
    """Draws the mean test accuracy against the mean entropy of couplings, later points darker.

    A grey line joins the points of equal training steps.
    """
    at_step: dict[float, list[Sequence[float]]] = {}
    for number, (row, records) in enumerate(comparison.records.items()):
        if found := _series(records, "entropy", "test", "test steps"):
            xs, ys = found[0].mean(axis=0), found[1].mean(axis=0)
            for step, *point in zip(found[2][0], xs, ys, strict=True):
                at_step.setdefault(step, []).append(point)
            colour = colormaps["viridis"](number / max(1, len(comparison.records) - 1))
            shades = [(*colour[:3], 0.3 + 0.7 * (i + 1) / len(xs)) for i in range(len(xs))]
            axes.scatter(xs, ys, color=shades, s=16, zorder=2)
            axes.plot([], [], "o", color=colour, label=row)
    for points in at_step.values():
        axes.plot(*zip(*points, strict=True), color="#bbbbbb", linewidth=0.8, zorder=1)
    _finish(axes, "mean entropy, nats", "test accuracy, %")


@options_first
def histogram(axes: Axes, comparison: Comparison, factor: str) -> None:
    """Draws a histogram of the cosines of a factor for each row, in per cent; controls dotted."""
    for row, records in comparison.records.items():
        if found := _series(records, f"{factor} counts", "edges"):
            share = 100 * found[0].sum(axis=0) / found[0].sum()
            style = "-" if comparison.rows[row].network == "trained" else ":"
            axes.stairs(share, found[1][0], linestyle=style, linewidth=1.4, label=row)
    axes.set_title(factor, fontsize=9)
    _finish(axes, "cosine", "images, %")


def sheets(comparison: Comparison) -> Figure:
    """Draws reconstructions under perturbation: a row an element, a column an offset."""
    arrays = _arrays(comparison)
    most = max((len(array) for _, array in arrays), default=1)
    # Hundreds of small pictures: at a third of the pixels they are as clear.
    figure = Figure((4.2 * len(arrays), 0.36 * most + 0.8), dpi=70, layout="constrained")
    every = figure.subplots(1, max(1, len(arrays)), squeeze=False)[0]
    for axes, (title, array) in zip(every, arrays, strict=False):
        # A grey line between two; those of a column are joined, then the columns.
        framed = np.pad(array[..., 0], [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=96)
        sheet = np.hstack(np.hstack(framed))
        axes.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="none")
        axes.set_title(title, fontsize=8)
        height = sheet.shape[0] / len(array)
        places = (np.arange(len(array)) + 0.5) * height
        axes.set_yticks(places, range(1, len(array) + 1), fontsize=6)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


def pairs(comparison: Comparison) -> Figure:
    """Draws images over reconstructions, each column headed by (label, prediction, target)."""
    examples = _with_arrays(comparison)
    columns = max((len(record["series"]["label"]) for record in examples.values()), default=1)
    size = (0.9 * columns + 0.6, 2.2 * len(examples))
    figure = Figure(size, dpi=120, layout="constrained")
    grid = figure.subplots(2 * max(1, len(examples)), columns, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=(), yticks=())
    for row, (variant, record) in enumerate(examples.items()):
        series = (record["series"][name] for name in ("label", "prediction", "target"))
        for column, head in enumerate(zip(*series, strict=True)):
            for part, name in enumerate(("images", "reconstructions")):
                axes = grid[2 * row + part, column]
                axes.imshow(record["loaded"][name][column, ..., 0], cmap="gray", vmin=0, vmax=255)
            grid[2 * row, column].set_title(f"({', '.join(map(str, head))})", fontsize=8)
        grid[2 * row, 0].set_ylabel(variant.replace(", ", ",\n"), fontsize=8)
    return figure


def feature_spaces(comparison: Comparison) -> Figure:
    """Draws each row's features on their two main axes, and below the reconstructions."""
    found = _with_arrays(comparison)
    figure = Figure((3.2 * len(found), 6.4), dpi=120, layout="constrained")
    grid = figure.subplots(2, max(1, len(found)), squeeze=False)
    for column, (row, record) in zip(grid.T, found.items(), strict=False):
        for axes, name in zip(column, ("features", "reconstructions"), strict=True):
            arrays = record["loaded"]
            axes.scatter(*arrays[name].T, c=arrays["labels"], cmap="brg", s=4, rasterized=True)
            axes.set_title(f"{row}: {name}", fontsize=8)
            axes.set_aspect("equal")
    return figure


def scatters(comparison: Comparison) -> Figure:
    """Draws points in the plane, coloured by where on the grid they belong."""
    arrays = _arrays(comparison)
    figure, every = _figure(len(arrays))
    for axes, (title, points) in zip(every, arrays, strict=True):
        side = round(len(points) ** 0.5)
        axes.scatter(*points.T, c=np.arange(len(points)) // side, cmap="viridis", s=12)
        axes.set_title(title, fontsize=8)
        axes.set_aspect("equal")
    return figure


def _series(records: Sequence[Mapping[str, Any]], *names: str) -> list[np.ndarray] | None:
    """Returns these series [runs, points], as long as in the run that stopped first."""
    runs = [r["series"] for r in records if set(names) <= r["series"].keys()]
    if not runs:
        return None
    every = [[series[name] for series in runs] for name in names]
    return [np.array([one[: min(map(len, of_runs))] for one in of_runs]) for of_runs in every]


def _with_arrays(comparison: Comparison) -> dict[str, Mapping[str, Any]]:
    """Returns the first run with arrays of each row; diverged runs have none."""
    every = comparison.records.items()
    loaded = {row: [record for record in records if "loaded" in record] for row, records in every}
    return {row: records[0] for row, records in loaded.items() if records}


def _arrays(comparison: Comparison) -> list[tuple[str, np.ndarray]]:
    """Returns all arrays of a run of each row, with a title."""
    return [
        (f"{row}: {name}", array)
        for row, record in _with_arrays(comparison).items()
        for name, array in record["loaded"].items()
    ]


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    columns = panels if 0 < panels <= 4 else 3
    rows = max(1, -(-panels // columns))
    figure = Figure(figsize=(4.6 * columns, 3.5 * rows), dpi=150, layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[panels:]:
        axes.set_visible(False)
    return figure, every[:panels]


def _finish(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set(xlabel=xlabel, ylabel=ylabel, axisbelow=True)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    many = len(axes.get_legend_handles_labels()[0])
    if many > _MOST_INSIDE:
        axes.legend(frameon=False, fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    elif many:
        axes.legend(frameon=False, fontsize=7)
    else:
        axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
