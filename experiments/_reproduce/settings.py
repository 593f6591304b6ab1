"""From an experiment's data to the config of one run, and what that run needs."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import ml_collections

from _reproduce.experiment import Experiment, Overrides
from capsjax._names import nearest
from capsjax.data import tasks
from capsjax.training import config as configs
from capsjax.training import optimizers

# Added to the seed of a run that begins with another's layers.
LATER_SEEDS = 1000
SECTIONS = {
    "optimizer": optimizers.optimizer_options,
    "schedule": optimizers.schedule_options,
}


def run_config(
    experiment: Experiment,
    variant: str,
    scale: str,
    seed: int,
    use: Mapping[str, str],
) -> ml_collections.ConfigDict:
    """The config of one training run.

    Later ones go before earlier ones: the recipe, the scale, the variant, the variant at the
    scale. Then data sets are replaced as `use` says. `init_from` is the name of the run that a
    pretrained variant begins with, wherever that is.

    Raises:
      ValueError: a value for a key that the config does not have.
    """
    chosen = experiment.variants[variant]
    config = _config(
        experiment,
        scale,
        {**chosen.overrides, **chosen.at.get(scale, {})},
        # Its fresh layers are to be others than the first training began with.
        seed if chosen.pretrained is None else seed + LATER_SEEDS,
        use,
    )
    first = first_config(experiment, variant, scale, seed, use)
    if first is not None:
        config.init_from = run_name(first)
    return config


def first_config(
    experiment: Experiment,
    variant: str,
    scale: str,
    seed: int,
    use: Mapping[str, str],
) -> ml_collections.ConfigDict | None:
    """The config of the run that a pretrained variant begins with; None for all others."""
    chosen = experiment.variants[variant]
    if chosen.pretrained is None:
        return None
    return _config(experiment, scale, {**chosen.pretrained, **chosen.at.get(scale, {})}, seed, use)


def trainings(
    experiment: Experiment,
    variant: str,
    scale: str,
    seed: int,
    use: Mapping[str, str],
) -> list[ml_collections.ConfigDict]:
    """The configs of all that is trained for one network of a variant, the last being its own."""
    first = first_config(experiment, variant, scale, seed, use)
    own = run_config(experiment, variant, scale, seed, use)
    return [own] if first is None else [first, own]


def _config(
    experiment: Experiment,
    scale: str,
    overrides: Overrides,
    seed: int,
    use: Mapping[str, str],
) -> ml_collections.ConfigDict:
    values: dict[str, Any] = {
        **experiment.recipe,
        **experiment.scales[scale].overrides,
        **overrides,
        "seed": seed,
    }
    for key in ("data.name", "data.source"):
        if key in values:
            values[key] = use.get(values[key], values[key])
    config = configs.default(model=values.pop("model.name"), data=values.pop("data.name"))
    if "data.source" in configs.flatten(config) and "data.source" not in values:
        values["data.source"] = use.get(config.data.source, config.data.source)
    return change(config, values)


def change(config: ml_collections.ConfigDict, values: Overrides) -> ml_collections.ConfigDict:
    """`config` with `values`.

    Raises:
      ValueError: a key that it does not have (the nearest is named), or a value of another type.
    """
    with config.unlocked():
        for key, value in values.items():
            known = configs.flatten(config)
            if key in SECTIONS:
                config[key] = ml_collections.ConfigDict(SECTIONS[key](**value))
                continue
            if key not in known:
                raise ValueError(f"no config key {key!r}: {nearest(key, known)}")
            *path, last = key.split(".")
            section = config
            for part in path:
                section = section[part]
            # ConfigDict takes no float for an int, and no int for a float.
            section[last] = float(value) if isinstance(known[key], float) else value
    return config


def key_of(config: ml_collections.ConfigDict) -> str:
    """Equal for configs that differ in nothing but the seed."""
    values = configs.to_json(config)
    del values["seed"]
    values["init_from"] = values["init_from"].rpartition("-seed")[0]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def run_name(config: ml_collections.ConfigDict) -> str:
    """What the directory of a training is called."""
    what = f"{config.model.name}-{config.data.name}"
    return f"{slug(what)}-{key_of(config)}-seed{config.seed}"


def slug(text: str) -> str:
    """For file names."""
    return re.sub(r"[^\w.=+]+", "_", text).strip("_")


def source_of(config: ml_collections.ConfigDict) -> str:
    """The data set that images are read from: the task's, or that which it is made from."""
    return config.data.source if config.data.name in tasks.generated() else config.data.name
