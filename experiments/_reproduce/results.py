"""From folders of results to comparisons and pages."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from _reproduce import tables
from _reproduce.compare import Comparison, compare
from _reproduce.experiment import SCALES, Experiment
from _reproduce.runs import Store, outcome, read_json, recorded
from capsjax._files import write_atomically
from capsjax._names import ABSENT


def gather(store: Store, name: str, experiment: Experiment) -> Comparison:
    """Gathers the records of `name`: those of today's recipe, and those kept apart."""
    records, left = dict[str, list[dict]](), []
    for row in experiment.at(store.scale).values():
        records[row.name] = []
        for number, file, record, changes in recorded(store, name, experiment, row):
            if changes:
                what = ", ".join(f"{k}: {_said(a)} → {_said(b)}" for k, (a, b) in changes.items())
                run = f"{row.name}, run {number} ({outcome(record)})"
                left.append(f"{run}: made with an older recipe ({what})")
                continue
            if record["arrays"]:
                with np.load(file.with_suffix(".npz")) as arrays:
                    record["loaded"] = {key: arrays[key] for key in record["arrays"]}
            records[row.name].append(record)
    return compare(name, experiment, store.scale, records, left)


def _said(value: object) -> str:
    return "the default" if value is ABSENT else repr(value)


def gather_all(
    stores: Sequence[Store], experiments: Mapping[str, Experiment]
) -> dict[str, list[Comparison]]:
    """Compares each name at each of its scales that is in `stores`.

    If there are none, the comparison is an empty one at full scale.
    """
    comparisons = {}
    for name, experiment in experiments.items():
        there = [store for store in stores if store.scale in experiment.scales]
        gathered = [gather(store, name, experiment) for store in there]
        comparisons[name] = gathered or [compare(name, experiment, "full", {})]
    return comparisons


def folders(workdir: Path) -> list[Store]:
    """Returns the folders of results in `workdir`, the largest scale first, or that folder."""
    inside = [workdir / scale for scale in reversed(SCALES)]
    with_results = [folder for folder in (workdir, *inside) if (folder / "about.json").exists()]
    if not with_results:
        raise FileNotFoundError(
            f"{workdir} holds no results: expected the --workdir of experiments/reproduce.py"
        )
    scales = [read_json(folder / "about.json")["scale"] for folder in with_results]
    return [Store(f, s, {}, None).with_earlier() for f, s in zip(with_results, scales, strict=True)]


def write(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Writes NAME.md, and NAME.png where it has a figure and was run.

    Returns the files; a figure of earlier runs is removed if there are none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{comparisons[0].stem}.md"
    picture = page.with_suffix(".png")
    write_atomically(page, tables.markdown(comparisons[0].name, tables.blocks(comparisons)))
    pictured = tables.pictured(comparisons)
    if pictured is None:
        picture.unlink(missing_ok=True)
        return [page]
    with matplotlib.rc_context({"font.size": 9}):
        drawn = io.BytesIO()
        pictured.experiment.figure(pictured).savefig(drawn, format="png")
    write_atomically(picture, drawn.getvalue())
    return [page, picture]


def write_all(
    names: Mapping[str, Sequence[Comparison]], findings: Mapping[str, str], folder: Path
) -> list[Path]:
    """Writes the pages of all names and `tables.index`; returns the files."""
    files = [file for comparisons in names.values() for file in write(comparisons, folder)]
    write_atomically(folder / "index.md", tables.index(names, findings))
    return [*files, folder / "index.md"]
