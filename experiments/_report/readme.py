"""The table of results in README.md, from the records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from _reproduce.compare import Comparison
from _reproduce.tables import beside

BEGIN, END = "<!-- results: report.py --readme -->", "<!-- end -->"


class Shown(NamedTuple):
    """A number that the README shows: of the largest scale that was run.

    Attributes:
      what: in the README's words.
      name: of the table or figure.
      metric: of one of its columns.
      row: of that table.
    """

    what: str
    name: str
    metric: str
    row: str


SHOWN = (
    Shown(
        "CapsNet on MNIST, test error, %",
        "sabour2017/mnist",
        "error",
        "3 iterations, reconstruction",
    ),
    Shown(
        "CapsNet of an eighth of the width on MNIST, accuracy, %",
        "choi2019/table1",
        "accuracy",
        "CapsNet, MNIST",
    ),
    Shown("AR CapsNet on MNIST, accuracy, %", "choi2019/table1", "accuracy", "MNIST"),
    Shown(
        "CapsNet on affine digits it never saw, accuracy, %", "gu2021/table1", "affnist", "CapsNet"
    ),
    Shown(
        "the same without routing, one transform for all (Aff-CapsNet)",
        "gu2021/table1",
        "affnist",
        "Aff-CapsNet",
    ),
    Shown(
        "CapsNet on two overlapping digits, test error, %",
        "sabour2017/multimnist",
        "error",
        "CapsNet",
    ),
)


def table(names: Mapping[str, Sequence[Comparison]]) -> str:
    """The table, in Markdown: rows that were run, with the size of their networks.

    Args:
      names: by name, its comparisons, the largest scale first.
    """
    lines = ["| | ours (the paper's) | networks | |", "| --- | ---: | --- | --- |"]
    for shown in SHOWN:
        cells = [(one, one.cells[shown.metric].get(shown.row)) for one in names[shown.name]]
        run = [(one, cell) for one, cell in cells if cell is not None and cell.ours is not None]
        if not run:
            continue
        one, cell = run[0]
        seeds = "one seed" if cell.ours.runs == 1 else f"{cell.ours.runs} seeds"
        about = one.experiment.scales[one.scale].about.partition(";")[0].rstrip(".")
        link = f"[{shown.name}](docs/results/{one.stem}.md)"
        lines.append(f"| {shown.what} | {beside(*cell, 2)} | {about}; {seeds} | {link} |")
    return "\n".join(lines)


def update(root: Path, names: Mapping[str, Sequence[Comparison]]) -> None:
    """Writes the table into README.md of the repository at `root`, between its marks."""
    file = root / "README.md"
    before, begin, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no lines {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n{table(names)}\n{END}{after}", encoding="utf-8")
