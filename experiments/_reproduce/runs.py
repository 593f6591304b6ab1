"""Single runs: each has a recipe, is trained once, measured once, and leaves one JSON file.

docs/reproduce.md has the layout of the folder and what is kept, shared and resumed.
"""

import functools
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _configs
import jax
import ml_collections
import numpy as np
from _provenance import commit, machine, versions

from _reproduce import measures
from _reproduce.experiment import Experiment, Measured, Overrides, Row
from _reproduce.measures import FinishedRun
from capsjax._files import digest, lock, replacing, write_atomically
from capsjax._names import differences
from capsjax.data import tasks
from capsjax.evaluation import ensemble
from capsjax.runs import checkpoints
from capsjax.runs.display import say
from capsjax.runs.history import Diverged, History
from capsjax.runs.loop import train
from capsjax.training import config as configs
from capsjax.training.build import build_model, resolve

LATER_SEEDS = 1000  # added for a run that begins with another's layers: its fresh ones differ


class Store(NamedTuple):
    """Where runs of one scale are kept, and what they are made from."""

    folder: Path
    scale: str
    use: Mapping[str, str]  # data sets that stand in for others, by the other's name
    data_dir: str | None  # as for `capsjax.data.load`

    def with_earlier(self) -> "Store":
        """Adds the stand-ins of earlier calls."""
        file = self.folder / "about.json"
        earlier = read_json(file)["data"] if file.exists() else {}
        return self._replace(use={**earlier, **self.use})

    def remember(self) -> None:
        """Adds the stand-ins to about.json, where another process may have named its own since."""
        use = self.with_earlier().use
        write_json(self.folder / "about.json", {"scale": self.scale, "data": dict(use)})


def recorded(
    store: Store, name: str, experiment: Experiment, row: Row
) -> list[tuple[int, Path, dict[str, Any], list[str]]]:
    """Returns, by number, a row's runs on disk: number, file, record, changes of the recipe."""
    config = trainings(experiment, row, store.scale, 0, store.use)[-1]
    found = []
    for file in (store.folder / "results" / name).glob(f"{slug(row.name)}-*-seed*.json"):
        record = read_json(file)
        number = int(file.stem.rpartition("-seed")[2])
        found.append((number, file, record, changes_since(record["config"], config)))
    return sorted(found, key=lambda run: run[:2])


def run_all(
    store: Store, name: str, experiment: Experiment, rows: Iterable[Row], seeds: int | None
) -> list[str]:
    """Does `seeds` runs of each row, or as many as the scale has, beside other processes.

    Returns a line for each row that was not run since its data are missing.
    """
    count = seeds or experiment.seeds(store.scale)
    numbers = {"trained": count, "untrained": max(count, 3), "pixels": 1}  # which have no seeds
    # Every row once, then once more: what is there after an interruption can be compared.
    every = range(max(numbers.values()))
    left = [(row, i) for i in every for row in rows if i < numbers[row.network]]
    lacking = {}
    for wait in (False, True):  # at last for what other processes are at
        busy = []
        for row, number in left:
            try:
                if run(store, name, experiment, row, number, wait=wait) is None:
                    busy.append((row, number))
            except FileNotFoundError as error:
                lacking[row.name] = f"{name}, {row.name}: {error}"
            # Compiled programs of networks that are done with: hundreds exhaust what the system
            # lets one process map (vm.max_map_count), and LLVM ends it.
            jax.clear_caches()
        left = busy
    return list(lacking.values())


def run(
    store: Store, name: str, experiment: Experiment, row: Row, number: int, wait: bool = False
) -> dict[str, Any] | None:
    """Trains and measures run `number` of a row, unless that was done before; returns its record.

    A training that diverges is a result too: its record says so and has no metrics. A record is
    made anew, without training, if it lacks a number that the table shows, or is of other images.
    Without `wait` it returns None if another process is at it.
    """
    seeds = range(number * row.members, (number + 1) * row.members)
    members = [trainings(experiment, row, store.scale, seed, store.use) for seed in seeds]
    config = configs.to_json(members[0][-1])
    file = store.folder / "results" / name / f"{slug(row.name)}-{key_of(config)}-seed{number}.json"
    with lock(store.folder / "locks" / f"{slug(name)}-{file.stem}", wait=wait) as held:
        if not held:
            return None
        say(f"\n{name}: {row.name}, run {number}")
        images = experiment.scales[store.scale].images
        for earlier, there, record, changes in recorded(store, name, experiment, row):
            if earlier == number and not changes:
                file = there
                if _complete(record, experiment, row, images):
                    say(outcome(record))
                    return record
        failed = None
        if row.network == "trained":
            measured, failed, trained = _trained(store, experiment, members, images)
        else:
            measured = experiment.measure(_control(row, members[0][-1], images, store.data_dir))
            trained = [_made(members[0][-1])]
        if wrong := {k: v for k, v in measured.metrics.items() if not np.isfinite(v)}:
            raise ValueError(f"{name}, {row.name}, run {number}: not finite: {wrong}")
        seconds = sum(sum(training["seconds"]) for training in trained)
        record = {
            "name": name,
            "variant": row.name,
            "scale": store.scale,
            "seeds": list(seeds),
            "images": images,
            "failed": failed,
            "metrics": dict(measured.metrics),
            "series": dict(measured.series),
            "arrays": sorted(measured.arrays),
            "config": config,
            **{key: trained[0][key] for key in ("commit", "versions", "device", "machine")},
            "measured_at_commit": commit(),
            "times": {"training_seconds": seconds, **measured.times},
        }
        if measured.arrays:
            with replacing(file.with_suffix(".npz")) as archive:
                np.savez_compressed(archive, **measured.arrays)
        write_json(file, record)  # last: with it the run counts as done
        say(outcome(record))
        return record


def outcome(record: Mapping[str, Any]) -> str:
    """Returns what was measured, or why nothing was."""
    numbers = (f"{metric} {value:.6g}" for metric, value in record["metrics"].items())
    return record["failed"] or ", ".join(numbers)


def _complete(record: Mapping[str, Any], experiment: Experiment, row: Row, images: int) -> bool:
    """Tells whether a record has all that the table shows, of as many images as it should."""
    if record.get("images") != images:
        return False
    if row.network != "trained" or record["failed"]:
        return True
    shown = {column.metric for column in experiment.columns if column.derive is None}
    return shown <= record["metrics"].keys() | record["times"].keys()


def _trained(
    store: Store,
    experiment: Experiment,
    members: Sequence[Sequence[ml_collections.ConfigDict]],
    images: int,
) -> tuple[Measured, str | None, list[dict[str, Any]]]:
    """Measures a network or an ensemble; returns the reason if it failed, and the trainings."""
    directories, begun, failed = [], [], None
    try:
        for member in members:
            for config in member:
                begun.append(_directory(store, config))
                _train(store, config, begun[-1], begun[-2] if config.init_from else "")
            directories.append(begun[-1])
    except Diverged as error:
        # The record leaves out where the run was kept.
        failed = f"{begun[-1].name}: {str(error).partition(':')[0]}"
    measured = Measured({})
    if not failed:
        read = [checkpoints.read(directory) for directory in directories]
        model = ensemble.join([each.model for each in read], [each.config for each in read])
        history = checkpoints.read(directories[0], "latest").history
        checkpoint = read[0]._replace(model=model)
        run = FinishedRun(checkpoint, history, directories[0], images, store.data_dir)
        measured = measures.all_of(experiment.measure, measures.network)(run)
    return measured, failed, [read_json(directory / "time.json") for directory in begun]


def _control(
    row: Row, config: ml_collections.ConfigDict, images: int, data_dir: str | None
) -> FinishedRun:
    """Returns a network as it is built, or none at all: raw pixels."""
    task = tasks.create(**config.data, data_dir=data_dir)
    config = resolve(config, task.input_shape, task.class_names)
    pixels = row.network == "pixels"
    model = measures.Pixels(len(task.class_names)) if pixels else build_model(config)
    history = History()
    checkpoint = checkpoints.Checkpoint(model, config, history, 0)
    return FinishedRun(checkpoint, history, None, images, data_dir)


def _directory(store: Store, config: ml_collections.ConfigDict) -> Path:
    """Returns the directory of the same training, if there is one, or a new one."""
    folder, what = store.folder / "runs", slug(f"{config.model.name}-{config.data.name}")
    for file in sorted(folder.glob(f"{what}-*-seed{config.seed}/time.json")):
        if not changes_since(read_json(file)["config"], config):
            return file.parent
    return folder / f"{what}-{key_of(configs.to_json(config))}-seed{config.seed}"


def _train(
    store: Store, config: ml_collections.ConfigDict, directory: Path, init_from: Path | str
) -> None:
    """Trains what is not trained yet, or waits while another process does.

    time.json says what the training was made with, and how long it took.
    """
    file = directory / "time.json"
    about = _made(config)
    config = config.copy_and_resolve_references()
    config.init_from = str(init_from)
    with lock(store.folder / "locks" / directory.name):
        if file.exists():
            about = read_json(file)
        if about.get("finished"):
            return
        began = time.monotonic()
        try:
            train(config, directory, data_dir=store.data_dir)
            about["finished"] = True
        finally:
            if (directory / "config.json").exists():  # not if the data are missing
                about["seconds"].append(time.monotonic() - began)
                write_json(file, about)


def _made(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns the config, commit, versions and device of a new record."""
    return {
        "config": configs.to_json(config),
        "commit": commit(),
        "versions": versions(),
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}",
        "machine": machine(),
        "seconds": [],
    }


def read_json(file: Path) -> dict[str, Any]:
    """Returns a record; raises ValueError naming the file if it is damaged."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}); remove it to run this anew") from error


def write_json(file: Path, record: Mapping[str, Any]) -> None:
    """Writes all or nothing: an interrupted write leaves no half file."""
    write_atomically(file, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def trainings(
    experiment: Experiment, row: Row, scale: str, seed: int, use: Mapping[str, str]
) -> list[ml_collections.ConfigDict]:
    """Returns the configs of all that is trained for one network of a row, its own last.

    Each is that of a file in configs/, changed by the scale, then by the row, then by the row at
    this scale. `init_from` of a pretrained row has the recipe and seed of the first training.
    """
    common, at_scale = experiment.scales[scale].overrides, row.at.get(scale, {})
    own_seed = seed + LATER_SEEDS if row.pretrained else seed
    own = _config(row.config, {**common, **row.changes, **at_scale}, own_seed, use)
    if not row.pretrained:
        return [own]
    first = _config(row.pretrained, {**common, **at_scale}, seed, use)
    own.init_from = f"{key_of(configs.to_json(first))}-seed{seed}"
    return [first, own]


_file = functools.cache(_configs.read)  # each file is executed once


def _config(
    file: str, changes: Overrides, seed: int, use: Mapping[str, str]
) -> ml_collections.ConfigDict:
    config = _file(file).copy_and_resolve_references()
    config.update_from_flattened_dict(changes)
    config.seed, config.seeds = seed, 1
    for key in {"name", "source"} & set(config.data):
        config.data[key] = use.get(config.data[key], config.data[key])
    return config


def slug(text: str) -> str:
    """Returns `text` as a part of a file name; without a hyphen."""
    return re.sub(r"[^\w.=+]+", "_", text).strip("_")


def recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what identifies a training, besides its seed: the options that are not defaults.

    So an option that the library gains or loses leaves it as it is where it had its default.
    """
    flat = _flatten(values)
    usual = _flatten(configs.to_json(configs.default(flat["model.name"], flat["data.name"])))
    usual = configs.RETIRED | usual
    names = ("model.name", "data.name")
    return {k: v for k, v in flat.items() if k in names or k not in usual or usual[k] != v}


def key_of(values: Mapping[str, Any]) -> str:
    """Hashes the recipe to eight digits."""
    return digest(json.dumps(recipe(values), sort_keys=True))[:8]


def changes_since(recorded: Mapping[str, Any], config: ml_collections.ConfigDict) -> list[str]:
    """Writes a line for each option in which a recorded recipe and today's differ."""
    return differences(recipe(recorded), recipe(configs.to_json(config)), absent="the default")


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options by dotted key: no seeds, nothing that follows from the data."""
    flat = configs.flatten(ml_collections.ConfigDict(values))
    # The recipe that a training begins with counts; the seed of that training does not.
    flat["init_from"] = flat["init_from"].rpartition("-seed")[0]
    draws = ("seed", "seeds", "key_version")
    kept = {k: v for k, v in flat.items() if k not in draws and not k.startswith("task.")}
    return json.loads(json.dumps(kept))
