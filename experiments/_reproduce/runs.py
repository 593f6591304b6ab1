"""Single runs: each is trained once, measured once, and leaves one JSON file.

A results folder holds, for one scale,

  about.json                                  what may be put into it
  runs/MODEL-DATA-KEY-seedN/                  of `capsjax.training.loop.train`, and time.json
  results/PAPER/NAME/VARIANT-KEY-seedN.json   what was measured (arrays beside it, .npz)
  locks/                                      a file for each run, locked by the process at it

KEY stands for all values of the config but the seed. So tables that need the same network share
its training, and results of an older config stay where they are but are not shown.
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

from _reproduce.experiment import Experiment, Measured
from _reproduce.measures import Finished
from _reproduce.settings import key_of, run_config, run_name, slug, trainings
from capsjax._files import lock as hold
from capsjax._files import write_atomically
from capsjax.evaluation import ensemble
from capsjax.training import checkpoints
from capsjax.training import config as configs
from capsjax.training.history import Diverged
from capsjax.training.loop import train

# Of the files here, and of what the measurements mean.
FORMAT = 1


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


def claim(where: Where, data: Mapping[str, str]) -> None:
    """Makes the folder one of this version, scale and data, or finds that it is.

    Args:
      where: the folder.
      data: what each data set of the runs to come is read from, in one folder always the same.

    Raises:
      ValueError: it belongs to others. Nothing is changed then.
    """
    check(where, data)  # before a lock file is put beside it
    folder = where.folder.absolute()
    with hold(folder.with_name(f".{folder.name}.lock")):
        about = check(where, data)
        file = folder / "about.json"
        if not file.exists() or read_json(file) != about:
            write_json(file, about)


def check(where: Where, data: Mapping[str, str]) -> dict[str, Any]:
    """What about.json is to say, with `data`; raises ValueError if the folder belongs to others."""
    file = where.folder / "about.json"
    about = {
        "format": FORMAT,
        "capsjax": version("capsjax"),
        "scale": where.scale,
        "data": dict(sorted(data.items())),
    }
    if file.exists():
        found = read_json(file)
        earlier = found.get("data", {})
        about["data"] = dict(sorted((data | earlier).items()))
        lines = [
            f"{key}: {found.get(key)!r} there, {about[key]!r} here"
            for key in ("format", "capsjax", "scale")
            if found.get(key) != about[key]
        ]
        lines += [
            f"{name}: {earlier[name]!r} there, {source!r} here"
            for name, source in data.items()
            if name in earlier and earlier[name] != source
        ]
        if lines:
            raise ValueError(
                f"{where.folder} holds results of another kind, which are kept and not mixed with "
                "new ones; give another --workdir. They differ in\n  " + "\n  ".join(lines)
            )
    elif where.folder.is_dir() and any(where.folder.iterdir()):
        raise ValueError(
            f"{where.folder} is not empty and no results folder (it has no about.json): choose "
            "another --workdir. Nothing was changed"
        )
    return about


def result_file(where: Where, name: str, experiment: Experiment, variant: str, run: int) -> Path:
    """Where the results of one run are, or will be."""
    config = run_config(experiment, variant, where.scale, run, where.use)
    return where.folder / "results" / name / f"{slug(variant)}-{key_of(config)}-seed{run}.json"


def run(
    where: Where,
    name: str,
    experiment: Experiment,
    variant: str,
    number: int,
    *,
    wait: bool = True,
) -> dict[str, Any] | None:
    """Trains and measures run `number` of a variant, unless that was done before.

    A training that diverges is a result too: its record says so and has no metrics.

    Args:
      wait: for another process that is at it, or trains what it needs.

    Returns:
      The record, as its JSON file has it; None if another process is at it, without `wait`.
    """
    file = result_file(where, name, experiment, variant, number)
    images = experiment.scales[where.scale].images
    lock = where.folder / "locks" / f"{slug(name)}-{file.stem}"
    with hold(lock, wait=wait) as held:
        if file.exists() and (record := read_json(file)).get("images", images) == images:
            return record
        if not held:
            return None
        return _run(where, file, name, experiment, variant, number, wait=wait)


def _run(
    where: Where,
    file: Path,
    name: str,
    experiment: Experiment,
    variant: str,
    number: int,
    *,
    wait: bool,
) -> dict[str, Any] | None:
    members = experiment.variants[variant].members
    seeds = range(number * members, (number + 1) * members)
    record: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "variant": variant,
        "scale": where.scale,
        "seeds": list(seeds),
        "images": experiment.scales[where.scale].images,
        "metrics": {},
        "series": {},
        "arrays": [],
        "failed": None,
    }
    directories, done = [], []
    for seed in seeds:
        for config in trainings(experiment, variant, where.scale, seed, where.use):
            try:
                directory = _train(where, config, wait=wait)
            except Diverged as error:
                # Where it was kept is no part of what happened.
                record["failed"] = f"{run_name(config)}: {str(error).partition(':')[0]}"
                done.append(_training_record(where, config))
                break
            if directory is None:
                return None
            done.append(read_json(directory / "time.json"))
        if record["failed"]:
            break
        directories.append(directory)
    init_from = config.init_from
    measured = Measured({})
    began = time.monotonic()
    if record["failed"] is None:
        read = [checkpoints.read(directory) for directory in directories]
        model = ensemble.join([c.model for c in read], [c.config for c in read])
        joined = read[0]._replace(model=model)
        config = joined.config
        history = checkpoints.read(directories[0], "latest").history
        scale = experiment.scales[where.scale]
        measured = experiment.measure(
            Finished(joined, history, directories[0], scale.images, where.data_dir)
        )
        _check_finite(measured)
        record["parameters"] = sum(x.size for x in jax.tree.leaves(_params(read[0].model)))
        record["step"] = joined.step
    record |= {
        "metrics": dict(measured.metrics),
        "series": dict(measured.series),
        "arrays": sorted(measured.arrays),
        # Not where on this machine the run began from.
        "config": configs.to_json(config) | {"init_from": init_from},
        **{key: done[0][key] for key in ("commit", "versions", "device")},
        "machine": done[0].get("machine"),
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


def _train(where: Where, config: ml_collections.ConfigDict, *, wait: bool) -> Path | None:
    """Trains what is not trained yet; an interrupted training goes on.

    Returns:
      The run's directory; None if another process trains it, for another name or variant, without
      `wait`.
    """
    directory = _directory(where, config)
    with hold(where.folder / "locks" / directory.name, wait=wait) as held:
        if not held:
            return None
        began = time.monotonic()
        try:
            train(_placed(where, config), directory, data_dir=where.data_dir)
        finally:
            if (directory / "config.json").exists():
                _record_time(where, config, time.monotonic() - began)
    return directory


def _placed(where: Where, config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """`config` with the place of the run that it begins with."""
    if not config.init_from:
        return config
    placed = config.copy_and_resolve_references()
    placed.init_from = str(where.folder / "runs" / config.init_from)
    file = _directory(where, config) / "config.json"
    if file.exists():  # the folder may have moved since
        stored = read_json(file)
        if Path(stored["init_from"]).name == config.init_from:
            write_json(file, stored | {"init_from": placed.init_from})
    return placed


def _record_time(where: Where, config: ml_collections.ConfigDict, seconds: float) -> None:
    """Adds a part of a training to its record; finding that all is done is none."""
    directory = _directory(where, config)
    file = directory / "time.json"
    record = _training_record(where, config)
    metrics = directory / "metrics.jsonl"
    length = metrics.stat().st_size if metrics.exists() else 0
    if record.get("metrics_bytes") != length:  # there was something to do
        record["seconds"] = [*record["seconds"], seconds]
        record["metrics_bytes"] = length
        write_json(file, record)


def _training_record(where: Where, config: ml_collections.ConfigDict) -> dict[str, Any]:
    file = _directory(where, config) / "time.json"
    if file.exists():
        return read_json(file)
    packages = ("capsjax", "jax", "jaxlib", "flax", "optax", "numpy")
    return {
        "commit": where.commit,
        "versions": {name: version(name) for name in packages},
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "machine": machine(),
        "seconds": [],
    }


def machine() -> str:
    """The processor of this machine, and the cores that this process may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    name = " and ".join(sorted(names)) or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}"


def _directory(where: Where, config: ml_collections.ConfigDict) -> Path:
    return where.folder / "runs" / run_name(config)


def _params(model: Any) -> Any:
    from flax import nnx

    return nnx.state(model, nnx.Param)


def _check_finite(measured: Measured) -> None:
    """A measurement that is not a number must not become one of a table's."""
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
    """All or nothing: an interrupted write leaves no half file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(epath.Path(file), json.dumps(record, indent=2, ensure_ascii=False) + "\n")
