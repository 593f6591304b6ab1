"""From a results folder to comparisons and files."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import matplotlib
import numpy as np

from _reproduce import tables
from _reproduce.compare import Comparison, compare
from _reproduce.experiment import SCALES, Experiment
from _reproduce.recipes import slug
from _reproduce.runs import Where, checked, kept, number_of, read_json


def gather(where: Where, name: str, experiment: Experiment) -> Comparison:
    """What there is of `name`: records of today's recipe, and what is kept beside them."""
    records: dict[str, list[dict]] = {}
    lines = []
    for variant in experiment.at(where.scale):
        found = kept(where, name, experiment, variant)
        records[variant] = [_read(found.files[number]) for number in sorted(found.files)]
        for file, differences in found.others.items():
            what = ", ".join(
                f"{key}: {_shown(a)} → {_shown(b)}" for key, (a, b) in differences.items()
            )
            of_run = read_json(file)["metrics"]
            numbers = [
                f"{column.metric} {of_run[column.metric]:.{column.digits}f}"
                for column in experiment.columns
                if column.metric in of_run
            ]
            lines.append(
                f"{variant}, run {number_of(file)} ({', '.join(numbers)}): made with an older "
                f"recipe ({what})"
            )
    known = {slug(variant) for variant in experiment.at(where.scale)}
    files = sorted((where.folder / "results" / name).glob("*-seed*.json"))
    unknown = sorted({read_json(f)["variant"] for f in files if f.stem.split("-")[0] not in known})
    lines += [f"{variant}: there is no such row at this scale any more" for variant in unknown]
    return compare(name, experiment, where.scale, records, lines)


def _read(file: Path) -> dict:
    record = read_json(file)
    if record["arrays"]:
        with np.load(file.with_suffix(".npz")) as arrays:
            record["loaded"] = {name: arrays[name] for name in record["arrays"]}
    return record


def _shown(value: object) -> str:
    return "not there" if value is None else repr(value)


def folders(workdir: Path) -> list[Where]:
    """The results folders in a --workdir of experiments/reproduce.py, or the one that it is.

    Raises:
      FileNotFoundError: there are none.
      ValueError: one is of another version.
    """
    found = []
    for folder in (workdir, *(workdir / scale for scale in SCALES)):
        file = folder / "about.json"
        if file.exists():
            scale = read_json(file).get("scale", "")
            found.append(checked(Where(folder, scale, {}, None, "")))
    if not found:
        raise FileNotFoundError(
            f"{workdir} holds no results: expected the --workdir of experiments/reproduce.py"
        )
    return found


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Writes NAME.md, and NAME.png and NAME.svg where it has a figure; returns the files."""
    stem = comparison.stem
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{stem}.md"
    text = tables.markdown(comparison)
    files = [page]
    if comparison.experiment.figure is not None:
        for ending in ("png", "svg"):
            file = folder / f"{stem}.{ending}"
            draw(comparison, file, ending)
            files.append(file)
        text += tables.picture(comparison)
    page.write_text(text)
    return files


def write_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Writes the pages of what was run, and index.md of all; returns the files."""
    files = [file for one in comparisons if one.has_page for file in write(one, folder)]
    index = folder / "index.md"
    folder.mkdir(parents=True, exist_ok=True)
    index.write_text(tables.index(comparisons))
    return [*files, index]


def draw(comparison: Comparison, file: Path | BinaryIO, kind: str) -> None:
    """Draws the figure as "png" or "svg"."""
    assert comparison.experiment.figure is not None
    # Equal results are to give equal files: no random ids, no date.
    metadata = {"Date": None} if kind == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "capsjax", "font.size": 9}):
        figure = comparison.experiment.figure(comparison)
        figure.savefig(file, format=kind, metadata=metadata)
