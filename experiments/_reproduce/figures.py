"""The papers' figures, from records. All are drawn on white, to stand beside the paper."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from _reproduce.compare import Comparison, by_line
from _reproduce.experiment import options_first

Drawing = Callable[[Comparison], Figure]
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
    in_paper, by_name = False, by_line(comparison.experiment, comparison.scale)
    for number, (line, variants) in enumerate(by_name.items()):
        points = [(x, comparison.cells[metric][name]) for name, x in variants.items()]
        colour = colormaps["tab10"](number % 10)
        ours = [(x, row.ours.mean, row.ours.std or 0.0) for x, row in points if row.ours]
        if ours:
            x, mean, std = zip(*ours, strict=True)
            axes.errorbar(
                x, mean, std, color=colour, marker="o", markersize=4, capsize=2, label=line
            )
        paper = [(x, row.printed.mean) for x, row in points if row.printed]
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
def bars(
    axes: Axes, comparison: Comparison, metric: str, groups: Sequence[str], ylabel: str
) -> None:
    """Draws `metric` as bars: a group for each x (its place in `groups`), a bar for each line."""
    lines = by_line(comparison.experiment, comparison.scale)
    width = 0.8 / len(lines)
    for number, (line, rows) in enumerate(lines.items()):
        cells = [(x, comparison.cells[metric][name].ours) for name, x in rows.items()]
        heights = [(x + (number + 0.5) * width - 0.4, ours) for x, ours in cells if ours]
        if heights:
            places, ours = zip(*heights, strict=True)
            means, stds = [o.mean for o in ours], [o.std or 0.0 for o in ours]
            axes.bar(places, means, width, yerr=stds, capsize=2, label=line)
    axes.set_xticks(range(len(groups)), groups)
    _finish(axes, "", ylabel)


@options_first
def curves_by_line(comparison: Comparison, x: str, y: str, xlabel: str, ylabel: str) -> Figure:
    """Draws a panel of `curves` for each line."""
    lines = by_line(comparison.experiment, comparison.scale)
    return beside(*(curves(x, y, xlabel, ylabel, line) for line in lines))(comparison)


@options_first
def curves(
    axes: Axes,
    comparison: Comparison,
    x: str,
    y: str,
    xlabel: str,
    ylabel: str,
    line: str | None = None,
) -> None:
    """Series `y` against series `x` for each row, of one line or of all.

    Each is the mean over the runs, in a band of one deviation.
    """
    rows = [*comparison.records]
    if line is not None:
        rows = [*by_line(comparison.experiment, comparison.scale).get(line, {})]
        axes.set_title(line, fontsize=9)
    for number, variant in enumerate(rows):
        every = [r["series"] for r in comparison.records[variant]]
        curves = [series for series in every if {x, y} <= series.keys()]
        if not curves:
            continue
        colour = colormaps["viridis"](number / max(1, len(rows) - 1))
        # A run that stopped early is as long as it is.
        length = min(len(series[y]) for series in curves)
        steps = curves[0][x][:length]
        values = np.array([series[y][:length] for series in curves])
        mean, std = values.mean(axis=0), values.std(axis=0)
        axes.plot(steps, mean, color=colour, label=variant, marker="." if length < 20 else None)
        axes.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    _finish(axes, xlabel, ylabel)


@options_first
def times(axes: Axes, comparison: Comparison, name: str, xlabel: str, ylabel: str) -> None:
    """Draws a measured time against each row's x."""
    for line, variants in by_line(comparison.experiment, comparison.scale).items():
        seconds = {
            x: [r["times"][name] for r in comparison.records[variant] if name in r["times"]]
            for variant, x in variants.items()
        }
        means = [(x, np.mean(own)) for x, own in seconds.items() if own]
        if means:
            axes.plot(*zip(*means, strict=True), marker="o", markersize=4, label=line)
    _finish(axes, xlabel, ylabel)


@options_first
def trace(
    axes: Axes, comparison: Comparison, x: str, y: str, steps: str, xlabel: str, ylabel: str
) -> None:
    """Series `y` against series `x`, later points darker.

    Each is the mean over the runs. A grey line joins the points of equal training steps, which are
    the series `steps`.
    """
    at_step: dict[float, list[tuple[float, float]]] = {}
    for number, (variant, records) in enumerate(comparison.records.items()):
        curves = [r["series"] for r in records if {x, y, steps} <= r["series"].keys()]
        if not curves:
            continue
        length = min(len(series[steps]) for series in curves)
        points = [
            (np.mean([s[x][i] for s in curves]), np.mean([s[y][i] for s in curves]))
            for i in range(length)
        ]
        for step, point in zip(curves[0][steps], points, strict=False):
            at_step.setdefault(step, []).append(point)
        colour = colormaps["viridis"](number / max(1, len(comparison.records) - 1))
        axes.scatter(
            *zip(*points, strict=True),
            color=[(*colour[:3], 0.3 + 0.7 * (i + 1) / length) for i in range(length)],
            s=16,
            zorder=2,
        )
        axes.plot([], [], "o", color=colour, label=variant)
    for points in at_step.values():
        axes.plot(*zip(*points, strict=True), color="#bbbbbb", linewidth=0.8, zorder=1)
    _finish(axes, xlabel, ylabel)


@options_first
def histogram(axes: Axes, comparison: Comparison, counts: str, edges: str) -> None:
    """Draws a histogram of the series `counts` for each row."""
    for variant, records in comparison.records.items():
        curves = [r["series"] for r in records if counts in r["series"]]
        if curves:
            total = np.sum([series[counts] for series in curves], axis=0)
            axes.stairs(total, curves[0][edges], fill=True, alpha=0.5, label=variant)
    axes.set_title(counts.removesuffix(" counts"), fontsize=9)
    _finish(axes, "cosine", "images")


def sheets(comparison: Comparison) -> Figure:
    """Reconstructions under perturbation: a row for each element, a column for each offset."""
    pictures = _arrays(comparison)
    if not pictures:
        return _nothing()
    sheets = [(title, _sheet(array), len(array)) for title, array in pictures]
    size = (4.2 * len(sheets), 0.36 * sheets[0][2] + 0.8)
    # Hundreds of small pictures: at a third of the pixels they are as clear.
    figure = Figure(figsize=size, dpi=90, layout="constrained")
    for axes, (title, sheet, rows) in zip(
        figure.subplots(1, len(sheets), squeeze=False)[0], sheets, strict=True
    ):
        # In an SVG the pictures' own pixels, not enlarged ones.
        axes.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="none")
        axes.set_title(title, fontsize=8)
        height = sheet.shape[0] / rows
        axes.set_yticks((np.arange(rows) + 0.5) * height, range(1, rows + 1), fontsize=6)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


def pairs(comparison: Comparison) -> Figure:
    """Images over their reconstructions, each column headed by (label, prediction, target)."""
    examples = [
        (variant, record["loaded"], record["series"])
        for variant, record in _with_arrays(comparison)
    ]
    if not examples:
        return _nothing()
    columns = max(len(series["label"]) for _, _, series in examples)
    figure = Figure(
        figsize=(0.9 * columns + 0.6, 2.2 * len(examples)), dpi=120, layout="constrained"
    )
    grid = figure.subplots(2 * len(examples), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for row, (variant, arrays, series) in enumerate(examples):
        heads = zip(series["label"], series["prediction"], series["target"], strict=True)
        for column, head in enumerate(heads):
            for part, name in enumerate(("images", "reconstructions")):
                axes = grid[2 * row + part, column]
                axes.imshow(arrays[name][column, ..., 0], cmap="gray", vmin=0, vmax=255)
            grid[2 * row, column].set_title(f"({', '.join(map(str, head))})", fontsize=8)
        grid[2 * row, 0].set_ylabel(variant)
    return figure


def feature_spaces(comparison: Comparison) -> Figure:
    """Draws each variant's features on their two main axes, and below the reconstructions."""
    loaded = [(variant, record["loaded"]) for variant, record in _with_arrays(comparison)]
    if not loaded:
        return _nothing()
    figure = Figure(figsize=(3.2 * len(loaded), 6.4), dpi=120, layout="constrained")
    grid = figure.subplots(2, len(loaded), squeeze=False)
    for column, (variant, arrays) in zip(grid.T, loaded, strict=True):
        for axes, name in zip(column, ("features", "reconstructions"), strict=True):
            points = arrays[name].T
            axes.scatter(*points, c=arrays["labels"], cmap="brg", s=4, rasterized=True)
            axes.set_title(f"{variant}: {name}", fontsize=8)
            axes.set_aspect("equal")
    return figure


def scatters(comparison: Comparison) -> Figure:
    """Points in the plane, coloured by where on the grid they belong."""
    arrays = _arrays(comparison)
    if not arrays:
        return _nothing()
    figure, every = _figure(len(arrays))
    for axes, (title, points) in zip(every, arrays, strict=True):
        side = round(len(points) ** 0.5)
        axes.scatter(*points.T, c=np.arange(len(points)) // side, cmap="viridis", s=12)
        axes.set_title(title, fontsize=8)
        axes.set_aspect("equal")
    return figure


def _with_arrays(comparison: Comparison) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Returns each variant with its first run that has arrays; diverged runs have none."""
    for variant, records in comparison.records.items():
        for record in [record for record in records if "loaded" in record][:1]:
            yield variant, record


def _arrays(comparison: Comparison) -> list[tuple[str, np.ndarray]]:
    """Returns all arrays of a run of each variant, with a title."""
    return [
        (f"{variant}: {name}", array)
        for variant, record in _with_arrays(comparison)
        for name, array in record["loaded"].items()
    ]


def _sheet(array: np.ndarray, gap: int = 1) -> np.ndarray:
    """Joins [d, k, h, w, c] into one picture."""
    framed = np.pad(array[..., 0], [(0, 0), (0, 0), (0, gap), (0, gap)], constant_values=96)
    return np.concatenate([np.concatenate(list(row), axis=1) for row in framed], axis=0)


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    columns = panels if panels <= 4 else 3
    rows = -(-panels // columns)
    figure = Figure(figsize=(4.6 * columns, 3.5 * rows), dpi=150, layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[panels:]:
        axes.set_visible(False)
    return figure, every[:panels]


def _finish(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    many = len(axes.get_legend_handles_labels()[0])
    if many > _MOST_INSIDE:
        axes.legend(frameon=False, fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
    elif many:
        axes.legend(frameon=False, fontsize=7)
    else:
        axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)


def _nothing() -> Figure:
    figure, (axes,) = _figure(1)
    axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
    axes.set_axis_off()
    return figure
