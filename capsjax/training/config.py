"""The configuration of a run: one nested `ConfigDict`, complete enough to restore a checkpoint.

Every option is declared once, in a dataclass: those of a network, a task, the loss, the optimizer
and the schedule in their own modules, the others here. `complete` checks a config, once, where it
comes in.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import ml_collections

from capsjax import _ledger, _options, models
from capsjax._names import check_kind
from capsjax._options import Options, check_known, checked, dotted, names, one_of, positive
from capsjax.data import tasks
from capsjax.training import optimizers
from capsjax.training.objective import LossOptions

KEY_VERSION = 2
MAX_SEED = 2**32 - 1  # JAX takes others for one of these
# Options of earlier versions, by their values that did nothing.
RETIRED = {"training.ema_decay": 0.0, "optimizer.accumulate_steps": 1}
_HOW = "begin with capsjax.training.config.default(model, data) and change what differs"


@dataclass(frozen=True)
class RunOptions(Options):
    """The options outside of all sections.

    Attributes:
      seed: of the parameters, the order and the examples.
      key_version: what is drawn from the seed, and how: a run goes on with the version that it
        began with.
      seeds: the number of runs, with the seeds `seed`, `seed` + 1, ….
      init_from: a work directory whose best checkpoint the run starts from; "" for none.
      init_layers: the layers to take from it; () for all that fit.
      frozen_layers: the layers that are not trained.
    """

    seed: int = 0
    key_version: int = checked(
        KEY_VERSION, lambda value: 1 <= value <= KEY_VERSION, f"must be from 1 to {KEY_VERSION}"
    )
    seeds: int = positive(1)
    init_from: str = ""
    init_layers: tuple[str, ...] = names()
    frozen_layers: tuple[str, ...] = names()

    def __post_init__(self) -> None:
        super().__post_init__()
        last = self.seed + self.seeds - 1
        if not 0 <= self.seed <= last <= MAX_SEED:
            to = f" to {last}" if last > self.seed else ""
            raise ValueError(f"seeds must lie in [0, {MAX_SEED}], got {self.seed}{to}")
        if self.init_layers and not self.init_from:
            raise ValueError(
                f"init_layers is {self.init_layers}, but init_from is empty: name the run to take "
                "them from"
            )


@dataclass(frozen=True)
class TrainingOptions(Options):
    """The section `training`.

    Attributes:
      epochs: passes over the training images.
      batch_size: images per step, divided over the devices.
      log_every_steps: steps that one record of the metrics is the mean of.
      compute_dtype: the network's arithmetic; parameters are float32.
      matmul_precision: of float32 matrix products on accelerators.
      stop_at_accuracy: ends at the first epoch whose validation accuracy reaches this; 0: never.
    """

    SECTION: ClassVar[str] = "training"

    epochs: int = positive(50)
    batch_size: int = positive(128)
    log_every_steps: int = positive(20)
    compute_dtype: str = one_of("float32", "bfloat16")
    matmul_precision: str = one_of("default", "high", "highest")
    stop_at_accuracy: float = checked(
        0.0, lambda value: 0 <= value <= 1, "must be a fraction in [0, 1] such as 0.9922 (0: never)"
    )


@dataclass(frozen=True)
class CheckpointOptions(Options):
    """The section `checkpoints`.

    Attributes:
      keep: how many of the latest checkpoints stay, beside the best by validation accuracy.
    """

    SECTION: ClassVar[str] = "checkpoints"

    keep: int = positive(2)


# The sections whose options depend on the name in them.
OPTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "model": models.options,
    "data": tasks.options,
    "optimizer": optimizers.optimizer_options,
    "schedule": optimizers.schedule_options,
}
_FIXED: dict[str, type[Options]] = {
    "loss": LossOptions,
    "training": TrainingOptions,
    "checkpoints": CheckpointOptions,
}
_SECTIONS = (*OPTIONS, *_FIXED)


def default(model: str, data: str) -> ml_collections.ConfigDict:
    """The recipe of Sabour et al. 2017 for the network `model` on the task `data`.

    Files in `configs/` start from here and change what differs (it is locked: a key that is not
    there is an error). Apart from `init_from`, nothing in it refers to a path on a
    machine, so the same config is the same run anywhere.
    """
    config = ml_collections.ConfigDict(
        {
            **asdict(RunOptions()),
            "model": {"name": model, **models.options(model)},
            "data": {"name": data, **tasks.options(data)},
            "optimizer": optimizers.optimizer_options("adam"),
            "schedule": optimizers.schedule_options("exponential"),
            **{section: asdict(options()) for section, options in _FIXED.items()},
        }
    )
    return config.lock()


def _defaults(section: str, name: Any) -> dict[str, Any]:
    """The options of a section, where `name` is its name if it has one."""
    if section in OPTIONS:
        return {"name": name} | OPTIONS[section](name)
    return asdict(_FIXED[section]())


def documentation(config: ml_collections.ConfigDict) -> dict[str, str]:
    """What each option of `config` does, by dotted key."""
    named = {
        "model": _options.documentation(type(models.lookup(config.model.name).config)),
        "data": tasks.documentation(config.data.name),
        "optimizer": _options.documentation(optimizers.OPTIMIZERS[config.optimizer.name]),
        "schedule": _options.documentation(optimizers.SCHEDULES[config.schedule.name]),
    }
    sections = {"": _options.documentation(RunOptions)} | named
    sections |= {section: _options.documentation(options) for section, options in _FIXED.items()}
    return {
        dotted(section, name): text
        for section, lines in sections.items()
        for name, text in lines.items()
    }


def complete(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """A copy of `config` whose values are checked, with defaults for options that it lacks.

    Raises:
      ValueError: a section is missing, an option is unknown (the nearest is named), or a value is
        not allowed.
    """
    if not isinstance(config, ml_collections.ConfigDict):
        raise ValueError(
            f"a config must be an ml_collections.ConfigDict, got {type(config).__name__}: {_HOW}"
        )
    flatten(config)  # raises if it is not sound
    values = config.to_dict()
    for section in _SECTIONS:
        if section not in values:
            raise ValueError(f"the config has no section {section!r}: {_HOW}")
        if not isinstance(values[section], dict):
            raise ValueError(f"{section} must be a section, got {values[section]!r}: {_HOW}")
        if section in OPTIONS and not isinstance(values[section].get("name"), str):
            raise ValueError(f"the config has no {section}.name, a string: {_HOW}")
    known = {section: asdict(options.of(values[section])) for section, options in _FIXED.items()}
    for section in ("optimizer", "schedule"):
        known[section] = OPTIONS[section](**values[section])
    for section in ("model", "data"):
        usual = _defaults(section, values[section]["name"])
        check_known(section, values[section], list(usual))
        for key, value in values[section].items():
            check_kind(dotted(section, key), value, usual[key])
        known[section] = usual | values[section]
    network = {key: value for key, value in known["model"].items() if key != "name"}
    replace(models.lookup(known["model"]["name"]).config, **network)  # it checks ranges
    rest = {key: value for key, value in values.items() if key not in (*_SECTIONS, "task")}
    known |= asdict(RunOptions.of(rest))
    if "task" in values:
        known["task"] = values["task"]
    return ml_collections.ConfigDict(known).lock()


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


def from_json(tree: Mapping[str, Any]) -> ml_collections.ConfigDict:
    """The inverse of `to_json` (tuples were lists there); of earlier versions too."""

    def tuples(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: tuples(v) for k, v in value.items()}
        return tuple(value) if isinstance(value, list) else value

    # The first version was not written down.
    values = {"key_version": 1} | tuples(tree)
    for key, inactive in RETIRED.items():
        section, _, name = key.partition(".")
        if isinstance(values.get(section), dict) and values[section].get(name) == inactive:
            del values[section][name]
    return ml_collections.ConfigDict(values).lock()


def differences(old: ml_collections.ConfigDict, new: ml_collections.ConfigDict) -> list[str]:
    """One line for each key in which the two differ."""
    return _ledger.differences(flatten(old), flatten(new))


def conflicts(old: ml_collections.ConfigDict, new: ml_collections.ConfigDict) -> list[str]:
    """The differences that prevent a run of `old` from continuing with `new`.

    More epochs extend a run: no schedule depends on their number. An option that came after a
    config was written had its default then.
    """
    extended = old.copy_and_resolve_references()
    extended.training.epochs = max(old.training.epochs, new.training.epochs)
    for config in (extended, new := new.copy_and_resolve_references()):
        with config.unlocked():
            for section in _SECTIONS:
                for key, value in _defaults(section, config[section].get("name")).items():
                    if key not in config[section]:
                        config[section][key] = value
    return differences(extended, new)
