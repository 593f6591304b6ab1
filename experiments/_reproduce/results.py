"""From a results folder to comparisons and files."""

import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import BinaryIO

import matplotlib
import numpy as np

from _reproduce import costs, tables
from _reproduce.compare import Comparison, compare
from _reproduce.experiment import SCALES, Experiment
from _reproduce.recipes import slug
from _reproduce.runs import Store, number_of, outcome, read_json, recorded


def gather(store: Store, name: str, experiment: Experiment) -> Comparison:
    """What there is of `name`: records of today's recipe, and what is kept beside them."""
    variants = experiment.at(store.scale)
    records: dict[str, list[dict]] = {variant: [] for variant in variants}
    left = []
    for variant in variants:
        for file, record, changes in recorded(store, name, experiment, variant):
            if changes:
                what = ", ".join(f"{k}: {_said(a)} → {_said(b)}" for k, (a, b) in changes.items())
                run = f"{variant}, run {number_of(file)} ({outcome(record)})"
                left.append(f"{run}: made with an older recipe ({what})")
                continue
            if record["arrays"]:
                with np.load(file.with_suffix(".npz")) as arrays:
                    record["loaded"] = {key: arrays[key] for key in record["arrays"]}
            records[variant].append(record)
    known = tuple(f"{slug(variant)}-" for variant in variants)
    files = (store.folder / "results" / name).glob("*-seed*.json")
    gone = {read_json(file)["variant"] for file in files if not file.name.startswith(known)}
    left += [f"{row}: this row no longer exists at this scale" for row in sorted(gone)]
    return compare(name, experiment, store.scale, records, left)


def _said(value: object) -> str:
    return "not there" if value is None else repr(value)


def of_no_name(store: Store, names: Container[str]) -> list[str]:
    """The folders of results that belong to none of `names`, a line each."""
    files = (store.folder / "results").glob("*/*/*-seed*.json")
    found = {f"{file.parent.parent.name}/{file.parent.name}" for file in files}
    return [f"{name}: this name no longer exists" for name in sorted(found) if name not in names]


def folders(workdir: Path) -> list[Store]:
    """The folders of results in `workdir`, or that folder; FileNotFoundError if there is none."""
    found = [f for f in (workdir, *map(workdir.joinpath, SCALES)) if (f / "about.json").exists()]
    if not found:
        raise FileNotFoundError(
            f"{workdir} holds no results: expected the --workdir of experiments/reproduce.py"
        )
    scales = [read_json(folder / "about.json")["scale"] for folder in found]
    return [Store(f, s, {}, None).with_earlier() for f, s in zip(found, scales, strict=True)]


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Writes NAME.md, and NAME.png and NAME.svg where it has a figure; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{comparison.stem}.md"]
    files[0].write_text(tables.page(comparison), encoding="utf-8")
    for kind in ("png", "svg") if comparison.experiment.figure else ():
        files.append(files[0].with_suffix(f".{kind}"))
        draw(comparison, files[-1], kind)
    return files


def write_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Writes the pages of what was run, and index.md; returns the files.

    Pages in `folder` of names that were not run here stay, and so do their lines of the index. What
    stands of each paper comes from the papers' pages, where they lie beside `folder`.
    """
    files = [file for one in comparisons if one.has_page for file in write(one, folder)]
    index = folder / "index.md"
    folder.mkdir(parents=True, exist_ok=True)
    earlier = index.read_text(encoding="utf-8") if index.exists() else ""
    stands = in_short(folder.parent / "papers")
    index.write_text(tables.index(comparisons, earlier, costs.read(), stands), encoding="utf-8")
    return [*files, index]


def in_short(papers: Path) -> dict[str, str]:
    """The paragraphs that begin with "In short:", by the name of the page."""
    pages = {file.stem: file.read_text(encoding="utf-8") for file in sorted(papers.glob("*.md"))}
    found = {name: re.search(r"^In short: (.+?)\n\n", t, re.M | re.S) for name, t in pages.items()}
    return {name: " ".join(one[1].split()) for name, one in found.items() if one}


def draw(comparison: Comparison, file: Path | BinaryIO, kind: str) -> None:
    """Draws the figure as "png" or "svg"."""
    # Equal results are to give equal files: no random ids, no date.
    metadata = {"Date": None} if kind == "svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "capsjax", "font.size": 9}):
        figure = comparison.experiment.figure(comparison)
        figure.savefig(file, format=kind, metadata=metadata)
