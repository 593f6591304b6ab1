"""The table of results in README.md, from the pages of docs/results."""

import re
from pathlib import Path
from typing import NamedTuple

BEGIN, END = "<!-- results: report.py --readme -->", "<!-- end -->"


class Shown(NamedTuple):
    """A row of a results page that the README shows.

    Attributes:
      what: in the README's words.
      page: of docs/results, without the ending.
      title: of the table on it.
      row: of that table.
    """

    what: str
    page: str
    title: str
    row: str


SHOWN = (
    Shown(
        "CapsNet on MNIST, test error, %",
        "sabour2017_mnist",
        "Test error, %",
        "3 iterations, reconstruction",
    ),
    Shown(
        "CapsNet on affine digits it never saw, accuracy, %",
        "gu2021_table1",
        "affNIST (generated), accuracy, %",
        "CapsNet",
    ),
    Shown(
        "the same without routing, one transform for all (Aff-CapsNet)",
        "gu2021_table1",
        "affNIST (generated), accuracy, %",
        "Aff-CapsNet",
    ),
    Shown(
        "CapsNet on two overlapping digits, accuracy, %",
        "gu2021_table4",
        "MultiMNIST, accuracy, %",
        "CapsNet",
    ),
    Shown(
        "how well poses follow a rotation, alignment ratio",
        "choi2019_table3",
        "Alignment ratio, rotation+",
        "MNIST",
    ),
)


def table(root: Path) -> str:
    """The table, in Markdown; `root` is that of the repository."""
    lines = ["| | ours, small scale | paper | |", "| --- | ---: | ---: | --- |"]
    for shown in SHOWN:
        ours, published = _numbers(root / "docs" / "results" / f"{shown.page}.md", shown)
        name = shown.page.replace("_", "/", 1)
        link = f"[{name}](docs/results/{shown.page}.md)"
        lines.append(f"| {shown.what} | {ours} | {published} | {link} |")
    return "\n".join(lines)


def update(root: Path) -> None:
    """Writes the table into README.md, between its marks."""
    file = root / "README.md"
    before, begin, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no lines {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n{table(root)}\n{END}{after}", encoding="utf-8")


def _numbers(page: Path, shown: Shown) -> tuple[str, str]:
    """Ours and the published one, as they stand on the page."""
    sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.M)
    for section in sections:
        title, _, text = section.partition("\n")
        for line in text.splitlines() if title == shown.title else ():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[0] == shown.row:
                return cells[1], cells[3]
    raise ValueError(f"{page}: no row {shown.row!r} in a table {shown.title!r}")
