"""A run's history as plots, each for a light and a dark page."""

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from _report.pictures import data_uri
from capsjax.training.history import History


class Colours(NamedTuple):
    """The colours of report.css."""

    text: str
    grid: str
    train: str
    validation: str


LIGHT = Colours("#1c2024", "#d9dde2", "#2563c9", "#c2570c")
DARK = Colours("#e4e7eb", "#3a4048", "#7fb0ff", "#ffa45c")


class Plot(NamedTuple):
    """The same plot for both kinds of page, as data URIs, and what it shows in words."""

    light: str
    dark: str
    alt: str


def loss(history: History, step: int) -> Plot:
    """The training loss; `step` is the checkpoint's."""
    steps, losses = _train(history, "loss")

    def draw(axes: Axes, colours: Colours) -> None:
        axes.plot(steps, losses, color=colours.train, label="train")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("loss")

    alt = f"Training loss falling from {losses[0]:.3g} to {losses[-1]:.3g} in {steps[-1]:,} steps"
    return _both(draw, alt, step)


def accuracy(history: History, step: int) -> Plot:
    """Training and, where images were held out, validation accuracy."""
    steps, shares = _train(history, "accuracy")
    validation = history.validation_accuracy()

    def draw(axes: Axes, colours: Colours) -> None:
        axes.plot(steps, shares, color=colours.train, label="train")
        if validation:
            axes.plot(
                list(validation),
                list(validation.values()),
                color=colours.validation,
                marker="o",
                markersize=3,
                label="validation",
            )
        # Where it ends is what matters: the first steps may fall below the frame.
        axes.set_ylim(*_accuracy_range([*shares, *validation.values()]))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("accuracy")

    alt = f"Training accuracy, {shares[-1]:.1%} at the end"
    if validation:
        alt += f", and validation accuracy, {max(validation.values()):.1%} at best"
    return _both(draw, alt, step)


def _train(history: History, name: str) -> tuple[list[int], list[float]]:
    records = [record for record in history.records if record["split"] == "train"]
    return [r["step"] for r in records], [r[name] for r in records]


def _accuracy_range(shares: Sequence[float]) -> tuple[float, float]:
    lowest = float(np.quantile(shares, 0.1))
    return max(0.0, lowest - 0.15 * (1 - lowest) - 0.005), 1.0 + 0.05 * (1 - lowest) + 0.0005


def _both(draw: Callable[[Axes, Colours], None], alt: str, step: int) -> Plot:
    light, dark = (_svg(draw, colours, step) for colours in (LIGHT, DARK))
    return Plot(light, dark, alt)


def _svg(draw: Callable[[Axes, Colours], None], colours: Colours, step: int) -> str:
    # Equal runs are to give equal pages: no random ids, no date.
    with matplotlib.rc_context({"svg.hashsalt": "capsjax"}):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.subplots()
        draw(axes, colours)
        axes.axvline(step, color=colours.text, linewidth=0.8, linestyle=":", label="checkpoint")
        axes.set_xlabel("step")
        axes.grid(color=colours.grid, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(colours.grid)
        axes.tick_params(which="both", color=colours.grid, labelcolor=colours.text)
        axes.xaxis.label.set_color(colours.text)
        axes.yaxis.label.set_color(colours.text)
        axes.legend(frameon=False, labelcolor=colours.text)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return data_uri(buffer.getvalue(), "image/svg+xml")
