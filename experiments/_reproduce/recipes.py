"""From a row of an experiment to the configs of its trainings, and how these are told apart."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import _configs
import ml_collections

from _reproduce.experiment import Experiment, Overrides
from capsjax.data import tasks
from capsjax.training import config as configs

LATER_SEEDS = 1000  # added for a run that begins with another's layers: its fresh ones differ
Changes = dict[str, tuple[Any, Any]]  # by key, a recorded value and today's


def run_config(
    experiment: Experiment, variant: str, scale: str, seed: int, use: Mapping[str, str]
) -> ml_collections.ConfigDict:
    """The config of a variant's own training, the last of its `trainings`."""
    return trainings(experiment, variant, scale, seed, use)[-1]


def trainings(
    experiment: Experiment, variant: str, scale: str, seed: int, use: Mapping[str, str]
) -> list[ml_collections.ConfigDict]:
    """The configs of all that is trained for one network of a variant, its own last.

    Each is that of the file in configs/, changed by the scale, then by the row, then by the row at
    this scale; data sets are replaced as `use` says. The `init_from` of a pretrained variant tells
    with which recipe and seed the first training was made. Raises ValueError if there is no such
    file in configs/, and KeyError for a change of a key that the config does not have.
    """
    row = experiment.variants[variant]
    of_scale, of_row = experiment.scales[scale].overrides, row.at.get(scale, {})
    own_seed = seed + LATER_SEEDS if row.pretrained else seed
    own = _config(row.config, {**of_scale, **row.changes, **of_row}, own_seed, use)
    if not row.pretrained:
        return [own]
    first = _config(row.pretrained, {**of_scale, **of_row}, seed, use)
    own.init_from = f"{recipe_key(first)}-seed{seed}"
    return [first, own]


def _config(
    file: str, changes: Overrides, seed: int, use: Mapping[str, str]
) -> ml_collections.ConfigDict:
    config = _configs.load(file)
    config.update_from_flattened_dict(changes)
    config.seed, config.seeds = seed, 1
    for key in {"name", "source"} & set(config.data):
        config.data[key] = use.get(config.data[key], config.data[key])
    return config


def source_of(config: ml_collections.ConfigDict) -> str:
    """The data set that images are read from: the task's, or that which it is made from."""
    return config.data.source if config.data.name in tasks.generated() else config.data.name


def slug(text: str) -> str:
    """For file names; without a hyphen."""
    return re.sub(r"[^\w.=+]+", "_", text).strip("_")


def key_of(config: ml_collections.ConfigDict) -> str:
    """Equal for configs that differ in nothing but the seed."""
    return _digest(_recipe(configs.to_json(config)), 10)


def recipe_key(config: ml_collections.ConfigDict) -> str:
    """Equal for configs that depart from the defaults in the same way.

    Unlike `key_of` it stays when the library gets a new option.
    """
    return _digest(_departures(configs.to_json(config)), 8)


def changes_since(recorded: Mapping[str, Any], config: ml_collections.ConfigDict) -> Changes:
    """Where the recorded values and today's make different networks.

    An option that the record does not know yet, at its default, makes no difference. One that is
    gone does: today's value is then None.
    """
    values = configs.to_json(config)
    old, new = _recipe(recorded), _recipe(values)
    added = _departures(values).keys() - old.keys()
    keys = sorted(old.keys() | added)
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def _recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the network, by dotted key: no seeds, nothing that follows from the data."""
    flat = configs.flatten(ml_collections.ConfigDict(values))
    flat["init_from"] = flat["init_from"].rpartition("-seed")[0]
    draws = ("seed", "seeds", "key_version")
    kept = {k: v for k, v in flat.items() if k not in draws and not k.startswith("task.")}
    return json.loads(json.dumps(kept))


def _departures(values: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the defaults, and the names of network and data."""
    flat = _recipe(values)
    default = configs.default(flat["model.name"], flat["data.name"])
    usual = _recipe(configs.to_json(default))
    names = ("model.name", "data.name")
    return {k: v for k, v in flat.items() if k in names or k not in usual or usual[k] != v}


def _digest(values: Mapping[str, Any], length: int) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:length]
