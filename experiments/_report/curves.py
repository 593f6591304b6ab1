"""Histories of runs as plots, each for a light and a dark page."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from _report.html import Html, data_uri, tag

MOST_POINTS = 300  # of a line, whose values the page gives
# Each on a light and on a dark page; the first two are those of page.css.
COLOURS = (
    ("#2563c9", "#7fb0ff"),
    ("#c2570c", "#ffa45c"),
    ("#1a7f4b", "#5fd39a"),
    ("#9333b0", "#d89bf0"),
    ("#6b7280", "#b4bcc8"),
    ("#a16207", "#e3c04f"),
)
TEXT, GRID = ("#1c2024", "#e4e7eb"), ("#d9dde2", "#3a4048")


class Line(NamedTuple):
    """Numbers by step."""

    name: str  # in the legend
    values: Mapping[int, float]  # at each step, the mean where they are of several runs
    # at each step, the standard deviation over the runs
    deviations: Mapping[int, float] | None = None
    colour: int = 0  # one of COLOURS
    marked: bool = False  # with dots


def losses(lines: Sequence[Line], alt: str, step: int | None = None) -> Html:
    """Draws lines on a logarithmic axis; `step` is that of a checkpoint."""

    def scale(axes: Axes) -> None:
        axes.set(ylabel="loss", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())

    return _html(lines, scale, alt, "loss", step)


def accuracies(lines: Sequence[Line], alt: str, step: int | None = None) -> Html:
    """Draws lines of shares; `step` is that of a checkpoint."""
    # Where it ends is what matters: the first steps may fall below the frame.
    lowest = min(float(np.quantile([*line.values.values()], 0.1)) for line in lines)

    def scale(axes: Axes) -> None:
        bottom, top = lowest - 0.15 * (1 - lowest) - 0.005, 1.0 + 0.05 * (1 - lowest) + 0.0005
        axes.set(ylabel="accuracy", ylim=(max(0.0, bottom), top))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))

    return _html(lines, scale, alt, "accuracy", step)


def _html(
    lines: Sequence[Line], scale: Callable[[Axes], None], alt: str, what: str, step: int | None
) -> Html:
    """Returns both pictures, and the values and places of the lines for curves.js."""
    (light, placed), (dark, _) = (_svg(lines, scale, step, dark) for dark in (False, True))
    data = json.dumps({"what": what, "lines": placed}, separators=(",", ":"))
    source = tag("source", media="(prefers-color-scheme: dark)", srcset=dark)
    picture = tag("picture", source, tag("img", src=light, alt=alt))
    return tag("div", picture, class_="plot", data_plot=data)


def _svg(
    lines: Sequence[Line], scale: Callable[[Axes], None], step: int | None, dark: bool
) -> tuple[str, list[dict[str, Any]]]:
    text, grid = TEXT[dark], GRID[dark]
    # Equal runs are to give equal pages: no random ids, no date.
    with matplotlib.rc_context({"svg.hashsalt": "capsjax", "axes.labelcolor": text}):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.subplots()
        for line in lines:
            _draw(axes, line, COLOURS[line.colour % len(COLOURS)][dark])
        axes.set_xlabel("step")
        scale(axes)
        if step is not None:
            axes.axvline(step, color=text, linewidth=0.8, linestyle=":", label="checkpoint")
        axes.grid(color=grid, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(grid)
        axes.tick_params(which="both", color=grid, labelcolor=text)
        axes.legend(frameon=False, labelcolor=text)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        placed = [_placed(axes, line) for line in lines]
    return data_uri(buffer.getvalue(), "image/svg+xml"), placed


def _draw(axes: Axes, line: Line, colour: str) -> None:
    # A dollar sign would begin a formula, and an underscore leave the line out of the legend.
    name = line.name.replace("$", r"\$")
    name = f"\u200b{name}" if name.startswith("_") else name
    steps, values = np.array([*line.values]), np.array([*line.values.values()])
    dots = {"marker": "o", "markersize": 3} if line.marked or len(steps) == 1 else {}
    axes.plot(steps, values, color=colour, label=name, **dots)
    if line.deviations:
        away = np.array([line.deviations[s] for s in steps.tolist()])
        axes.fill_between(steps, values - away, values + away, color=colour, alpha=0.2, linewidth=0)


def _placed(axes: Axes, line: Line) -> dict[str, Any]:
    """Returns step, value, and the place as fractions of the picture's width and height."""
    points = np.array([*line.values.items()])
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    places = (axes.transData + axes.figure.transFigure.inverted()).transform(points)
    deviations = [line.deviations[int(s)] if line.deviations else None for s in points[:, 0]]
    return {
        "name": line.name,
        "points": [
            [int(s), float(f"{v:.4g}"), round(float(x), 4), round(1 - float(y), 4), d]
            for (s, v), (x, y), d in zip(points, places, deviations, strict=True)
        ],
    }
