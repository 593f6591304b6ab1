"""Single runs: each is trained once, measured once, and leaves one JSON file.

docs/reproduce.md has the layout of the folder and what is kept, shared and resumed.
"""

import functools
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import evaluate
import jax
import ml_collections
import numpy as np
from etils import epath

from _reproduce.experiment import Experiment, Measured
from _reproduce.measures import Finished
from _reproduce.recipes import DRAWS, changes_since, key_of, run_config, run_name, slug, trainings
from capsjax._files import lock, write_atomically
from capsjax.evaluation import ensemble
from capsjax.training import checkpoints
from capsjax.training import config as configs
from capsjax.training.display import console
from capsjax.training.history import Diverged
from capsjax.training.loop import train


class Where(NamedTuple):
    """Where runs are kept and what they are made from.

    Attributes:
      folder: of one scale.
      scale: its name.
      use: data sets that stand in for others, by the other's name.
      data_dir: as for `capsjax.data.load`.
    """

    folder: Path
    scale: str
    use: Mapping[str, str]
    data_dir: str | None

    def with_earlier(self) -> "Where":
        """With the stand-ins of earlier calls; ValueError if a data set would change its own."""
        file = self.folder / "about.json"
        earlier = read_json(file)["data"] if file.exists() else {}
        for name, other in self.use.items():
            if earlier.get(name, other) != other:
                raise ValueError(
                    f"in {self.folder} {earlier[name]!r} stands in for {name!r}: give another "
                    f"--workdir to have {other!r} there"
                )
        return self._replace(use=earlier | dict(self.use))

    def remember(self) -> None:
        """Writes about.json."""
        write_json(self.folder / "about.json", {"scale": self.scale, "data": dict(self.use)})


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
    for file in sorted((where.folder / "results" / name).glob(f"{slug(variant)}-*-seed*.json")):
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
      The record, as its JSON file has it; None while another process is at it.
    """
    key = key_of(run_config(experiment, variant, where.scale, number, where.use))
    file = where.folder / "results" / name / f"{slug(variant)}-{key}-seed{number}.json"
    shown = {column.metric for column in experiment.columns if not column.deviation_of}
    with lock(where.folder / "locks" / f"{slug(name)}-{file.stem}", wait=False) as held:
        if not held:
            return None
        console().print(f"\n{name}: {variant}, run {number}", markup=False)
        file = kept(where, name, experiment, variant).files.get(number, file)
        if file.exists():
            record = read_json(file)
            there = record["metrics"].keys() | record["times"].keys()
            of_these = record.get("images") == experiment.scales[where.scale].images
            if of_these and (record["failed"] or shown <= there):
                return record
        return _run(where, file, name, experiment, variant, number)


def _run(
    where: Where, file: Path, name: str, experiment: Experiment, variant: str, number: int
) -> dict[str, Any]:
    members = experiment.variants[variant].members
    images = experiment.scales[where.scale].images
    seeds = range(number * members, (number + 1) * members)
    own = run_config(experiment, variant, where.scale, seeds[0], where.use)
    directories, begun, failed = [], [], None
    try:
        for seed in seeds:
            for config in trainings(experiment, variant, where.scale, seed, where.use):
                begun.append(_directory(where, config))
                _train(where, config, begun[-1], init_from=begun[-2] if config.init_from else "")
            directories.append(begun[-1])
    except Diverged as error:
        # Where it was kept is no part of what happened.
        failed = f"{begun[-1].name}: {str(error).partition(':')[0]}"
    began = time.monotonic()
    measured = Measured({})
    if not failed:
        measured = experiment.measure(_finished(directories, images, where.data_dir))
    for metric, value in measured.metrics.items():
        if not np.isfinite(value):
            raise ValueError(f"the measurement {metric} gave {value}")
    trained = [read_json(directory / "time.json") for directory in begun]
    record = {
        "name": name,
        "variant": variant,
        "scale": where.scale,
        "seeds": list(seeds),
        "images": images,
        "failed": failed,
        "metrics": dict(measured.metrics),
        "series": dict(measured.series),
        "arrays": sorted(measured.arrays),
        "config": configs.to_json(own),
        **{key: trained[0][key] for key in ("commit", "versions", "device", "machine")},
        "measured_at_commit": commit(),
        "times": {
            "training_seconds": sum(sum(one["seconds"]) for one in trained),
            "measuring_seconds": time.monotonic() - began,
            **measured.times,
        },
    }
    if measured.arrays:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file.with_suffix(".npz"), **measured.arrays)
    write_json(file, record)  # last: with it the run counts as done
    return record


def _finished(directories: Sequence[Path], images: int, data_dir: str | None) -> Finished:
    """One network, or the ensemble of several."""
    read = [checkpoints.read(directory) for directory in directories]
    model = ensemble.join([one.model for one in read], [one.config for one in read])
    history = checkpoints.read(directories[0], "latest").history
    return Finished(read[0]._replace(model=model), history, directories[0], images, data_dir)


def _directory(where: Where, config: ml_collections.ConfigDict) -> Path:
    """The directory of the same training, even if the library has gained options, or a new one."""
    folder, name = where.folder / "runs", run_name(config)
    for file in sorted(folder.glob(name.replace(key_of(config), "*") + "/config.json")):
        recorded = file.with_name("time.json")
        found = read_json(recorded).get("config") if recorded.exists() else None
        if not changes_since(found or read_json(file), config):
            return file.parent
    return folder / name


def _train(
    where: Where, config: ml_collections.ConfigDict, directory: Path, init_from: Path | str
) -> None:
    """Trains what is not trained yet, resuming an interrupted training.

    It waits while another process trains the same for another name or variant. time.json says what
    the training was made with, and how long it took.
    """
    made, times = directory / "config.json", directory / "time.json"
    with lock(where.folder / "locks" / directory.name):
        about = read_json(times) if times.exists() else _made_with(config)
        if about.get("finished"):
            return
        config = config.copy_and_resolve_references()
        config.init_from = str(init_from)
        if made.exists():  # the folder may have moved, and the library gained options
            begun = configs.to_json(configs.from_json(read_json(made)))
            same = {key: begun[key] for key in (*DRAWS, "task")}
            write_json(made, configs.to_json(config) | same)
        began = time.monotonic()
        try:
            train(config, directory, data_dir=where.data_dir)
            about["finished"] = True
        finally:
            if made.exists():
                about["seconds"].append(time.monotonic() - began)
                write_json(times, about)


def _made_with(config: ml_collections.ConfigDict) -> dict[str, Any]:
    return {
        "config": configs.to_json(config),
        "commit": commit(),
        "versions": evaluate.versions(),
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "machine": machine(),
        "seconds": [],
    }


@functools.cache
def commit() -> str:
    """The commit of this code."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def machine() -> str:
    """The processor of this machine, and the cores that this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    name = " and ".join(sorted(names)) or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}"


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
