"""From a row of an experiment to the configs of its trainings, and how these are told apart."""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import _configs
import ml_collections

from _reproduce.experiment import Experiment, Overrides, Row
from capsjax import _names
from capsjax.data import tasks
from capsjax.training import config as configs

LATER_SEEDS = 1000  # added for a run that begins with another's layers: its fresh ones differ
Changes = dict[str, tuple[Any, Any]]  # see `capsjax._names.changes`


def trainings(
    experiment: Experiment, row: Row, scale: str, seed: int, use: Mapping[str, str]
) -> list[ml_collections.ConfigDict]:
    """Returns the configs of all that is trained for one network of a row, its own last.

    Each is that of the file in configs/, changed by the scale, then by the row, then by the row at
    this scale; data sets are replaced as `use` says. The `init_from` of a pretrained row tells with
    which recipe and seed the first training was made.
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


def source_of(config: ml_collections.ConfigDict) -> str:
    """Returns the data set that images are read from: the task's, or that which it is made from."""
    return config.data.source if config.data.name in tasks.generated() else config.data.name


def slug(text: str) -> str:
    """Returns `text` as a part of a file name; without a hyphen."""
    return re.sub(r"[^\w.=+]+", "_", text).strip("_")


def recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what identifies a training, besides its seed: the options that are not defaults.

    An option that the library gains later, at its default, leaves it as it is; one that it loses
    does not, unless it had its default. `values` are those of `configs.to_json`.
    """
    flat = _flatten(values)
    usual = _flatten(configs.to_json(configs.default(flat["model.name"], flat["data.name"])))
    usual = configs.RETIRED | usual
    names = ("model.name", "data.name")
    return {k: v for k, v in flat.items() if k in names or k not in usual or usual[k] != v}


def key_of(values: Mapping[str, Any]) -> str:
    """Hashes the recipe to eight digits."""
    text = json.dumps(recipe(values), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def changes_since(recorded: Mapping[str, Any], config: ml_collections.ConfigDict) -> Changes:
    """Returns the options in which a recorded recipe and today's differ."""
    return _names.changes(recipe(recorded), recipe(configs.to_json(config)))


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options by dotted key: no seeds, nothing that follows from the data."""
    flat = configs.flatten(ml_collections.ConfigDict(values))
    # The recipe that a training begins with counts; the seed of that training does not.
    flat["init_from"] = flat["init_from"].rpartition("-seed")[0]
    draws = ("seed", "seeds", "key_version")
    kept = {k: v for k, v in flat.items() if k not in draws and not k.startswith("task.")}
    return json.loads(json.dumps(kept))
