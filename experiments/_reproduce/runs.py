"""Single runs: each is trained once, measured once, and leaves one JSON file.

A results folder holds, for one scale,

  about.json                                  what it is for
  runs/MODEL-DATA-KEY-seedN/                  of `capsjax.training.loop.train`, and time.json
  results/PAPER/NAME/VARIANT-KEY-seedN.json   what was measured (arrays beside it, .npz)
  locks/                                      a file for each run, locked by the process at it

KEY stands for all values of the config but the seed, so tables that need the same network share
its training. Results of an older recipe stay where they are and are not shown.
"""

import json
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath
from flax import nnx

from _reproduce.experiment import Experiment, Measured
from _reproduce.measures import Finished
from _reproduce.recipes import changes_since, key_of, run_config, run_name, slug, trainings
from capsjax._files import lock as hold
from capsjax._files import write_atomically
from capsjax.evaluation import ensemble
from capsjax.training import checkpoints
from capsjax.training import config as configs
from capsjax.training.history import Diverged
from capsjax.training.loop import train

FORMAT = 1  # of the files here
PACKAGES = ("capsjax", "jax", "jaxlib", "flax", "optax", "numpy")


class Where(NamedTuple):
    """Where runs are kept and what they are made from.

    Attributes:
      folder: of one scale.
      scale: its name.
      use: data sets that stand in for others, by the other's name.
      data_dir: as for `capsjax.data.load`.
      commit: of the code, for the records.
    """

    folder: Path
    scale: str
    use: Mapping[str, str]
    data_dir: str | None
    commit: str


def checked(where: Where) -> Where:
    """`where` with the stand-ins of earlier calls.

    Raises:
      ValueError: the folder is of another version, scale or data, or something else. Nothing is
        changed.
    """
    file = where.folder / "about.json"
    if not file.exists():
        if where.folder.is_dir() and any(where.folder.iterdir()):
            raise ValueError(
                f"{where.folder} is not empty and no results folder (it has no about.json): choose "
                "another --workdir. Nothing was changed"
            )
        return where
    found = read_json(file)
    earlier = found.get("data", {})
    wanted = {"format": FORMAT, "capsjax": version("capsjax"), "scale": where.scale}
    pairs = [(key, found.get(key), value) for key, value in wanted.items()]
    pairs += [(name, earlier.get(name, other), other) for name, other in where.use.items()]
    if lines := [
        f"{key}: {there!r} there, {here!r} here" for key, there, here in pairs if there != here
    ]:
        raise ValueError(
            f"{where.folder} holds results of another kind, which are kept and not mixed with new "
            "ones; give another --workdir. They differ in\n  " + "\n  ".join(lines)
        )
    return where._replace(use=earlier | dict(where.use))


def claim(where: Where) -> Where:
    """As `checked`; makes the folder this one's, or finds that it is."""
    where = checked(where)
    about = {"format": FORMAT, "capsjax": version("capsjax"), "scale": where.scale}
    about["data"] = dict(sorted(where.use.items()))
    file = where.folder / "about.json"
    if not file.exists() or read_json(file) != about:
        write_json(file, about)
    return where


class Kept(NamedTuple):
    """Records of a variant.

    Attributes:
      files: of today's recipe, by number.
      others: of other recipes, with the differences from today's.
    """

    files: dict[int, Path]
    others: dict[Path, dict[str, tuple[Any, Any]]]


def kept(where: Where, name: str, experiment: Experiment, variant: str) -> Kept:
    """The records that the folder has of one variant."""
    config = run_config(experiment, variant, where.scale, 0, where.use)
    found = Kept({}, {})
    folder = where.folder / "results" / name
    for file in sorted(folder.glob(f"{slug(variant)}-*-seed*.json")):
        differences = changes_since(read_json(file)["config"], config)
        if differences:
            found.others[file] = differences
        else:
            found.files[number_of(file)] = file
    return found


def number_of(file: Path) -> int:
    """Which of the runs of a variant `file` records."""
    return int(file.stem.rpartition("-seed")[2])


def run(
    where: Where, name: str, experiment: Experiment, variant: str, number: int
) -> dict[str, Any] | None:
    """Trains and measures run `number` of a variant, unless that was done before.

    A training that diverges is a result too: its record says so and has no metrics. A record is
    made anew, without training, if it lacks a number that the table shows, or is of other images.

    Returns:
      The record, as its JSON file has it; None while another process is at it, or trains what it
      needs.
    """
    key = key_of(run_config(experiment, variant, where.scale, number, where.use))
    file = where.folder / "results" / name / f"{slug(variant)}-{key}-seed{number}.json"
    images = experiment.scales[where.scale].images
    shown = {column.metric for column in experiment.columns if not column.deviation_of}
    with hold(where.folder / "locks" / f"{slug(name)}-{file.stem}", wait=False) as held:
        file = kept(where, name, experiment, variant).files.get(number, file)
        if file.exists():
            record = read_json(file)
            measured = record["metrics"].keys() | record["times"].keys()
            if record.get("images", images) == images and (record["failed"] or shown <= measured):
                return record
        return _run(where, file, name, experiment, variant, number) if held else None


def _run(
    where: Where, file: Path, name: str, experiment: Experiment, variant: str, number: int
) -> dict[str, Any] | None:
    members = experiment.variants[variant].members
    seeds = range(number * members, (number + 1) * members)
    images = experiment.scales[where.scale].images
    directories: list[Path] = []
    done: list[dict[str, Any]] = []
    failed = None
    for seed in seeds:
        for config in trainings(experiment, variant, where.scale, seed, where.use):
            directory = where.folder / "runs" / run_name(config)
            try:
                if not _train(where, config, directory):
                    return None
            except Diverged as error:
                # Where it was kept is no part of what happened.
                failed = f"{directory.name}: {str(error).partition(':')[0]}"
            done.append(read_json(directory / "time.json"))
            if failed:
                break
        if failed:
            break
        directories.append(directory)
    record: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "variant": variant,
        "scale": where.scale,
        "seeds": list(seeds),
        "images": images,
        "failed": failed,
    }
    init_from = config.init_from
    measured, began = Measured({}), time.monotonic()
    if failed is None:
        read = [checkpoints.read(directory) for directory in directories]
        model = ensemble.join([c.model for c in read], [c.config for c in read])
        joined = read[0]._replace(model=model)
        config = joined.config
        history = checkpoints.read(directories[0], "latest").history
        finished = Finished(joined, history, directories[0], images, where.data_dir)
        measured = experiment.measure(finished)
        _check_finite(measured)
        params = nnx.state(read[0].model, nnx.Param)
        record["parameters"] = sum(leaf.size for leaf in jax.tree.leaves(params))
        record["step"] = joined.step
    record |= {
        "metrics": dict(measured.metrics),
        "series": dict(measured.series),
        "arrays": sorted(measured.arrays),
        # Not where on this machine the run began from.
        "config": configs.to_json(config) | {"init_from": init_from},
        **{key: done[0].get(key) for key in ("commit", "versions", "device", "machine")},
        "measured_at_commit": where.commit,
        "times": {
            "training_seconds": sum(sum(t["seconds"]) for t in done),
            "measuring_seconds": time.monotonic() - began,
            **measured.times,
        },
    }
    if measured.arrays:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file.with_suffix(".npz"), **measured.arrays)
    write_json(file, record)  # last: with it the run counts as done
    return record


def _train(where: Where, config: ml_collections.ConfigDict, directory: Path) -> bool:
    """Trains what is not trained yet, resuming an interrupted training.

    Returns:
      False if another process trains it, for another name or variant.
    """
    with hold(where.folder / "locks" / directory.name, wait=False) as held:
        if not held:
            return False
        if config.init_from:
            config = config.copy_and_resolve_references()
            config.init_from = str(where.folder / "runs" / config.init_from)
            _move(directory, config.init_from)
        before, began = _size(directory), time.monotonic()
        try:
            train(config, directory, data_dir=where.data_dir)
        finally:
            if _size(directory) != before:  # there was something to do
                _add_time(where, directory / "time.json", time.monotonic() - began)
    return True


def _move(directory: Path, init_from: str) -> None:
    """Tells a run that began with another's layers where that one is now: folders may move."""
    file = directory / "config.json"
    if file.exists():
        write_json(file, read_json(file) | {"init_from": init_from})


def _size(directory: Path) -> int:
    """Bytes of the log, which grows with every step; −1 before there is a run."""
    log = directory / "metrics.jsonl"
    return log.stat().st_size if log.exists() else -1


def _add_time(where: Where, file: Path, seconds: float) -> None:
    made = {
        "commit": where.commit,
        "versions": {name: version(name) for name in PACKAGES},
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "machine": machine(),
        "seconds": [],
    }
    record = read_json(file) if file.exists() else made
    write_json(file, record | {"seconds": [*record["seconds"], seconds]})


def machine() -> str:
    """The processor of this machine, and the cores that this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    name = " and ".join(sorted(names)) or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}"


def _check_finite(measured: Measured) -> None:
    for name, value in measured.metrics.items():
        if not np.isfinite(value):
            raise ValueError(f"the measurement {name} gave {value}")


def read_json(file: Path) -> dict[str, Any]:
    """A record; raises ValueError naming the file if it is damaged."""
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}); remove it to run this anew") from error


def write_json(file: Path, record: Mapping[str, Any]) -> None:
    """Writes all or nothing: an interrupted write leaves no half file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(epath.Path(file), json.dumps(record, indent=2, ensure_ascii=False) + "\n")
