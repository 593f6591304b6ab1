"""The configuration of a run: one nested `ConfigDict`, complete enough to restore a checkpoint."""

import json
from collections.abc import Callable
from typing import Any

import ml_collections

from capsjax import models
from capsjax._names import check_kind, nearest
from capsjax.data import tasks
from capsjax.training import optimizers

KEY_VERSION = 2
_HOW = "begin with capsjax.training.config.default(model, data) and change what differs"
_WITH_DEFAULTS = ("loss.", "optimizer.", "schedule.")
# The sections whose options depend on the name in them.
OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "model": models.options,
    "data": tasks.options,
    "optimizer": optimizers.optimizer_options,
    "schedule": optimizers.schedule_options,
}


def default(model: str, data: str) -> ml_collections.ConfigDict:
    """The recipe of Sabour et al. 2017 for the network `model` on the task `data`.

    Files in `configs/` start from here and change what differs (it is locked: a key that is not
    there is an error). Apart from `init_from`, nothing in it refers to a path on a
    machine, so the same config is the same run anywhere.
    """
    config = ml_collections.ConfigDict(
        {
            "seed": 0,
            # What is drawn from the seed, and how: see `step.run_key`. A run goes on with the
            # version that it began with.
            "key_version": KEY_VERSION,
            # The number of runs, with the seeds `seed`, `seed` + 1, …
            "seeds": 1,
            # A work directory whose best checkpoint the run starts from ("" for none), the layers
            # to take from it (() for all that fit), and the layers that are not trained.
            "init_from": "",
            "init_layers": (),
            "frozen_layers": (),
            "model": {"name": model, **models.options(model)},
            "data": {"name": data, **tasks.options(data)},
            "loss": {
                "name": "margin",
                "classes": "sum",
                "reconstruction": "sum",
                "reconstruction_weight": 0.0005,
            },
            "optimizer": optimizers.optimizer_options("adam"),
            "schedule": optimizers.schedule_options("exponential"),
            "training": {
                "epochs": 50,
                "batch_size": 128,
                "log_every_steps": 20,
                # The network's arithmetic: float32 or bfloat16. Parameters are float32.
                "compute_dtype": "float32",
                # Of float32 matrix products on accelerators: default, high or highest.
                "matmul_precision": "default",
                # Stop at the end of an epoch with at least this validation accuracy; 0: never.
                "stop_at_accuracy": 0.0,
                # Decay per step of the parameters' moving averages, which are then validated
                # and kept for use; 0: no averages.
                "ema_decay": 0.0,
            },
            # At the end of each epoch: the latest `keep` and the best by validation accuracy.
            "checkpoints": {"keep": 2},
        }
    )
    return config.lock()


def check(config: ml_collections.ConfigDict) -> None:
    """Raises ValueError unless `config` has the keys of `default`, with values of their kinds.

    Options of the network, the data, the loss, the optimizer and the schedule may be left out.
    """
    if not isinstance(config, ml_collections.ConfigDict):
        raise ValueError(
            f"a config must be an ml_collections.ConfigDict, got {type(config).__name__}: {_HOW}"
        )
    for section in ("model", "data"):
        if not isinstance(config.get(section), ml_collections.ConfigDict):
            raise ValueError(f"the config has no section {section!r}: {_HOW}")
        if not isinstance(config[section].get("name"), str):
            raise ValueError(f"the config has no {section}.name, a string: {_HOW}")
    expected = default(config.model.name, config.data.name)
    with expected.unlocked():
        for section in ("optimizer", "schedule"):
            given = config.get(section)
            if isinstance(given, ml_collections.ConfigDict):
                if not isinstance(given.get("name"), str):
                    raise ValueError(f"the config has no {section}.name, a string: {_HOW}")
                expected[section] = OPTIONS[section](given.name)
    for key, value in expected.items():
        if isinstance(value, ml_collections.ConfigDict) != isinstance(
            config.get(key), ml_collections.ConfigDict
        ):
            what = "a section" if isinstance(value, ml_collections.ConfigDict) else "one value"
            raise ValueError(f"the config's {key} must be {what}, got {config.get(key)!r}: {_HOW}")
    known, given = flatten(expected), flatten(config)
    for key, value in given.items():
        if not key.startswith("task."):
            if key not in known:
                raise ValueError(f"the config has no key {key!r}: {nearest(key, known)}")
            check_kind(key, value, known[key])
    missing = [
        key
        for key in known
        if key not in given and not key.startswith(("model.", "data.", *_WITH_DEFAULTS))
    ]
    if missing:
        raise ValueError(f"the config has no {', '.join(missing)}: {_HOW}")


def resolve(
    config: ml_collections.ConfigDict,
    input_shape: tuple[int, int, int],
    class_names: tuple[str, ...],
) -> ml_collections.ConfigDict:
    """`config` with the shape and classes of the data: all that it takes to rebuild the network."""
    resolved = config.copy_and_resolve_references()
    with resolved.unlocked():
        resolved.task = {"input_shape": tuple(input_shape), "class_names": tuple(class_names)}
    return resolved


def flatten(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """All values of `config` by dotted key.

    Raises:
      ValueError: a section holds itself, or has a key that is not a string.
    """
    try:
        return _flatten(config)
    except RecursionError:
        raise ValueError("a section of the config holds itself") from None
    except TypeError:  # of sorting them
        raise ValueError("keys of the config must be strings") from None


def _flatten(config: ml_collections.ConfigDict) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, ml_collections.ConfigDict):
            flat |= {f"{key}.{k}": v for k, v in _flatten(value).items()}
        else:
            flat[key] = value
    return flat


def to_json(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """`config` as plain dicts, lists, numbers and strings."""
    return json.loads(config.to_json())


def from_json(tree: dict[str, Any]) -> ml_collections.ConfigDict:
    """The inverse of `to_json` (tuples were lists there); of earlier versions too."""

    def tuples(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: tuples(v) for k, v in value.items()}
        return tuple(value) if isinstance(value, list) else value

    # The first version was not written down.
    return ml_collections.ConfigDict({"key_version": 1} | tuples(tree)).lock()


def differences(old: ml_collections.ConfigDict, new: ml_collections.ConfigDict) -> list[str]:
    """One line for each key in which the two differ."""
    a, b, missing = flatten(old), flatten(new), object()
    return [
        f"{key}: {a.get(key, 'not set')!r} → {b.get(key, 'not set')!r}"
        for key in sorted(a.keys() | b.keys())
        if a.get(key, missing) != b.get(key, missing)
    ]


def conflicts(old: ml_collections.ConfigDict, new: ml_collections.ConfigDict) -> list[str]:
    """The differences that prevent a run of `old` from continuing with `new`.

    More epochs extend a run: no schedule depends on their number. An option that came after a
    config was written had its default then.
    """
    extended = old.copy_and_resolve_references()
    extended.training.epochs = max(old.training.epochs, new.training.epochs)
    return differences(_complete(extended), _complete(new))


def _complete(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """With the defaults of the options that are missing in its sections."""
    complete = config.copy_and_resolve_references()
    with complete.unlocked():
        for section, options in OPTIONS.items():
            for key, value in options(config[section].name).items():
                if key not in complete[section]:
                    complete[section][key] = value
    return complete
