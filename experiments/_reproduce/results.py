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
from _reproduce.runs import Where, kept, number_of, read_json


def gather(where: Where, name: str, experiment: Experiment) -> Comparison:
    """What there is of `name`: records of today's recipe, and what is kept beside them."""
    variants = experiment.at(where.scale)
    records, left = {}, []
    for variant in variants:
        found = kept(where, name, experiment, variant)
        records[variant] = [_read(found.files[number]) for number in sorted(found.files)]
        for file, differences in found.others.items():
            metrics = read_json(file)["metrics"]
            shown = [column for column in experiment.columns if column.metric in metrics]
            numbers = ", ".join(f"{c.metric} {metrics[c.metric]:.{c.digits}f}" for c in shown)
            what = ", ".join(f"{k}: {_said(a)} → {_said(b)}" for k, (a, b) in differences.items())
            left.append(
                f"{variant}, run {number_of(file)} ({numbers}): made with an older recipe ({what})"
            )
    known = {slug(variant) for variant in variants}
    files = (where.folder / "results" / name).glob("*-seed*.json")
    unknown = {read_json(f)["variant"] for f in files if f.stem.split("-")[0] not in known}
    left += [
        f"{variant}: there is no such row at this scale any more" for variant in sorted(unknown)
    ]
    return compare(name, experiment, where.scale, records, left)


def _read(file: Path) -> dict:
    record = read_json(file)
    if record["arrays"]:
        with np.load(file.with_suffix(".npz")) as arrays:
            record["loaded"] = {name: arrays[name] for name in record["arrays"]}
    return record


def _said(value: object) -> str:
    return "not there" if value is None else repr(value)


def folders(workdir: Path) -> list[Where]:
    """The results folders in a --workdir of experiments/reproduce.py, or the one that it is.

    Raises:
      FileNotFoundError: there are none.
    """
    candidates = (workdir, *(workdir / scale for scale in SCALES))
    found = [folder for folder in candidates if (folder / "about.json").exists()]
    if not found:
        raise FileNotFoundError(
            f"{workdir} holds no results: expected the --workdir of experiments/reproduce.py"
        )
    scales = [read_json(folder / "about.json")["scale"] for folder in found]
    return [Where(f, s, {}, None).with_earlier() for f, s in zip(found, scales, strict=True)]


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Writes NAME.md, and NAME.png and NAME.svg where it has a figure; returns the files."""
    page = folder / f"{comparison.stem}.md"
    folder.mkdir(parents=True, exist_ok=True)
    page.write_text(tables.page(comparison))
    pictures = []
    if comparison.experiment.figure is not None:
        pictures = [page.with_suffix(f".{kind}") for kind in ("png", "svg")]
    for file in pictures:
        draw(comparison, file, file.suffix[1:])
    return [page, *pictures]


def write_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Writes the pages of what was run, and index.md; returns the files.

    Pages in `folder` of names that were not run here stay, and so do their lines of the index.
    """
    files = [file for one in comparisons if one.has_page for file in write(one, folder)]
    index = folder / "index.md"
    folder.mkdir(parents=True, exist_ok=True)
    earlier = index.read_text() if index.exists() else ""
    index.write_text(tables.index(comparisons, earlier))
    return [*files, index]


def draw(comparison: Comparison, file: Path | BinaryIO, kind: str) -> None:
    """Draws the figure as "png" or "svg"."""
    assert comparison.experiment.figure is not None
    # Equal results are to give equal files: no random ids, no date.
    metadata = {"Date": None} if kind == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "capsjax", "font.size": 9}):
        figure = comparison.experiment.figure(comparison)
        figure.savefig(file, format=kind, metadata=metadata)
