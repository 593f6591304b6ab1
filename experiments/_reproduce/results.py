"""From a results folder to comparisons and files."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import matplotlib
import numpy as np

from _reproduce import tables
from _reproduce.compare import Comparison, compare
from _reproduce.experiment import SCALES, Experiment
from _reproduce.runs import Where, check, read_json, result_file


def gather(where: Where, name: str, experiment: Experiment) -> Comparison:
    """What there is of `name`, of the config as it is now."""
    records: dict[str, list[dict]] = {}
    for variant in experiment.at(where.scale):
        first = result_file(where, name, experiment, variant, 0)
        stem = first.stem.removesuffix("0")
        files = sorted(
            first.parent.glob(f"{stem}*.json"), key=lambda file: int(file.stem[len(stem) :])
        )
        found = []
        for file in files:
            record = read_json(file)
            if record["arrays"]:
                with np.load(file.with_suffix(".npz")) as arrays:
                    record["loaded"] = {name: arrays[name] for name in record["arrays"]}
            found.append(record)
        records[variant] = found
    return compare(name, experiment, where.scale, records)


def folders(workdir: Path) -> list[Where]:
    """The results folders in a --workdir of experiments/reproduce.py, or the one that it is.

    Raises:
      FileNotFoundError: there are none.
      ValueError: one is of another version.
    """
    candidates = [workdir, *(workdir / scale for scale in SCALES)]
    found = []
    for folder in candidates:
        file = folder / "about.json"
        if file.exists():
            about = read_json(file)
            where = Where(folder, about.get("scale", ""), about.get("data", {}), None, "")
            check(where, {})  # of this version, or an error
            found.append(where)
    if not found:
        raise FileNotFoundError(
            f"{workdir} holds no results: expected the --workdir of experiments/reproduce.py"
        )
    return found


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """NAME.md, and NAME.png and NAME.svg where it has a figure; returns the files."""
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
        text += f"\n![{comparison.experiment.title}]({stem}.png)\n"
    page.write_text(text)
    return files


def write_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """The pages of what was run, and index.md of all; returns the files."""
    files = [file for one in comparisons if one.was_run for file in write(one, folder)]
    index = folder / "index.md"
    folder.mkdir(parents=True, exist_ok=True)
    index.write_text(tables.index(comparisons))
    return [*files, index]


def draw(comparison: Comparison, file: Path | BinaryIO, kind: str) -> None:
    """The figure as "png" or "svg"."""
    assert comparison.experiment.figure is not None
    # Equal results are to give equal files: no random ids, no date.
    metadata = {"Date": None} if kind == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "capsjax", "font.size": 9}):
        figure = comparison.experiment.figure(comparison)
        figure.savefig(file, format=kind, metadata=metadata)
