"""The configuration of a run: one nested `ConfigDict`, complete enough to restore a checkpoint.

Every option is declared once, in a dataclass: those of networks, tasks, the loss, optimizers and
schedules in their own modules, the others here. `complete` checks a config where it comes in.
"""

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import ml_collections
from flax.traverse_util import flatten_dict

from capsjax import _names, _options, models
from capsjax._names import check_kind, check_options, dotted, lookup
from capsjax._options import Described, Options, checked, names, one_of, positive
from capsjax.data import tasks
from capsjax.training.objective import LossOptions
from capsjax.training.optimizers import OPTIMIZERS, SCHEDULES

KEY_VERSION = 2
MAX_SEED = 2**32 - 1  # JAX takes others for one of these
# Options of earlier versions, with the values that had no effect.
RETIRED = {"training.ema_decay": 0.0, "optimizer.accumulate_steps": 1, "model.dense_votes": False}
_HOW = "begin with capsjax.training.config.default(model, data) and change what differs"


@dataclass(frozen=True)
class RunOptions(Options):
    """The options outside of all sections.

    Attributes:
      seed: determines the parameters, the order and the examples.
      key_version: how random numbers follow from the seed; a run keeps the version that it began
        with.
      seeds: the number of runs, with the seeds `seed`, `seed` + 1, ….
      init_from: a run (its best checkpoint) or a released file to start from; "" for none.
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


@dataclass(frozen=True)
class TrainingOptions(Options):
    """The section `training`.

    Attributes:
      epochs: passes over the training images.
      batch_size: images per step, divided over the devices.
      log_every_steps: steps over which one record of the metrics is averaged.
      compute_dtype: the network's arithmetic in training; all else is float32.
      matmul_precision: the precision of float32 matrix products on accelerators.
      stop_at_accuracy: ends at the first epoch whose validation accuracy reaches this (gu2021,
        table 1; sabour2017, affNIST).
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
      keep: how many of the latest epochs' checkpoints stay, beside the best by validation accuracy.
    """

    SECTION: ClassVar[str] = "checkpoints"

    keep: int = positive(2)


def _first_lines(table: Mapping[str, type]) -> str:
    return " ".join(f"{name}: {str(cls.__doc__).splitlines()[0]}" for name, cls in table.items())


# The options of each section; those of the first four depend on the name that is in the section.
SECTIONS: dict[str, Callable[[str], Any]] = {
    "model": lambda name: models.lookup(name).config,
    "data": tasks.family,
    "optimizer": lambda name: lookup("optimizer.name", name, OPTIMIZERS)(),
    "schedule": lambda name: lookup("schedule.name", name, SCHEDULES)(),
    "loss": lambda _: LossOptions(),
    "training": lambda _: TrainingOptions(),
    "checkpoints": lambda _: CheckpointOptions(),
}
# Sections with a name, and what `describe` says of it.
NAMED = {
    "model": ("listed by experiments/models.py, or registered", "the network."),
    "data": ("listed in docs/data.md, npz:FILE or folder:PATH", "the data set or task."),
    "optimizer": (", ".join(OPTIMIZERS), _first_lines(OPTIMIZERS)),
    "schedule": (", ".join(SCHEDULES), _first_lines(SCHEDULES)),
}


def default(model: str, data: str) -> ml_collections.ConfigDict:
    """Returns the recipe of Sabour et al. 2017 for the network `model` on the task `data`.

    Files in `configs/` start from here and change what differs. It is locked: setting an unknown
    key is an error.
    """
    names = {"model": model, "data": data, "optimizer": "adam", "schedule": "exponential"}
    sections = {section: defaults(section, names.get(section, "")) for section in SECTIONS}
    return ml_collections.ConfigDict(asdict(RunOptions()) | sections).lock()


def defaults(section: str, name: str = "", **changed: Any) -> dict[str, Any]:
    """Returns a section's default options (of this `name`, if it has names), with `changed`."""
    return _checked(section, ({"name": name} if section in NAMED else {}) | changed)


def describe(config: ml_collections.ConfigDict) -> dict[str, Described]:
    """Describes every option of a complete `config`, by dotted key, with its value there."""
    options = _options.describe(RunOptions())
    for section, declared in SECTIONS.items():
        if section in NAMED:
            options[f"{section}.name"] = Described("", *NAMED[section])
        of_section = _options.describe(declared(config[section].get("name")))
        options |= {dotted(section, key): option for key, option in of_section.items()}
    values = flatten(config)
    return {key: option._replace(default=values[key]) for key, option in options.items()}


def complete(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Returns a copy of `config` whose values are checked, with defaults for options that it lacks.

    Raises ValueError for an unknown option (the nearest is named) or a value that is not allowed.
    """
    if not isinstance(config, ml_collections.ConfigDict):
        raise ValueError(f"a config must be an ml_collections.ConfigDict, got {config!r}: {_HOW}")
    values = _options.tuples(config.to_dict())
    known = {section: _checked(section, values.pop(section, None)) for section in SECTIONS}
    known |= {"task": values.pop("task")} if "task" in values else {}
    return ml_collections.ConfigDict(asdict(RunOptions.of(values)) | known).lock()


def _checked(section: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"the config has no section {section!r}: {_HOW}")
    named = {"name": str(values.pop("name", ""))} if section in NAMED else {}
    usual = SECTIONS[section](named.get("name", ""))
    try:
        check_options("the config", values, [option.name for option in fields(usual)], section)
    except ValueError as error:
        if section in NAMED:
            name = named["name"]
            error.add_note(f"To take that name: config.{section} = defaults({section!r}, {name!r})")
        raise
    for key, value in values.items():
        check_kind(dotted(section, key), value, getattr(usual, key))
    return named | asdict(replace(usual, **values))


def override(
    config: ml_collections.ConfigDict, texts: Mapping[str, str]
) -> ml_collections.ConfigDict:
    """Returns a complete copy of `config` with other values.

    If `texts` names another network, data set, optimizer or schedule, its section gets the default
    options of that name. Values that `config` had changed from the defaults of the old name are
    kept if the new one has such an option too.

    `texts` are values by dotted key, such as {"optimizer.momentum": "0.8"}; each is read as the
    type of the value that it replaces.
    """
    values = complete(config).to_dict()
    for section in NAMED:
        if (name := texts.get(f"{section}.name")) is not None:
            before, after = (defaults(section, n) for n in (values[section]["name"], name))
            changed = {key for key, value in values[section].items() if value != before[key]}
            values[section] = after | {key: values[section][key] for key in changed & after.keys()}
    known = flatten(ml_collections.ConfigDict(values))
    check_options("the config", texts, known)
    for key, text in texts.items():
        section, _, name = key.rpartition(".")
        (values[section] if section else values)[name] = parse_value(text, known[key])
    return complete(ml_collections.ConfigDict(values))


def parse_value(text: str, current: Any) -> Any:
    """Reads `text` as a value like `current`; returns it unchanged if that fails."""
    if isinstance(current, str):
        return text
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        value = tuple(text.split(",")) if isinstance(current, tuple) and text else text
    if isinstance(current, tuple):
        if isinstance(value, tuple | list):
            return tuple(value)
        return (value,) if text else ()
    is_small = type(value) is int and abs(value) < 2**53
    return float(value) if isinstance(current, float) and is_small else value


def flatten(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns all values of `config` by dotted key."""
    return flatten_dict(config.to_dict(), sep=".")


def to_json(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns `config` as plain dicts, lists, numbers and strings."""
    return json.loads(config.to_json())


def from_json(tree: Mapping[str, Any]) -> ml_collections.ConfigDict:
    """Inverts `to_json` (turns lists back into tuples), also for configs of earlier versions."""
    # The first version was not written down.
    values = {"key_version": 1} | _options.tuples(tree)
    for key, inactive in RETIRED.items():
        section, name = key.split(".")
        if values[section].get(name) == inactive:
            del values[section][name]
    return ml_collections.ConfigDict(values).lock()


def conflicts(old: ml_collections.ConfigDict, new: ml_collections.ConfigDict) -> list[str]:
    """Returns the differences that prevent a run of `old` from continuing with a complete `new`.

    The number of epochs may change, as no schedule depends on it, and that of seeds may grow. How
    many checkpoints are kept may change. An option added since `old` was written counts as having
    its default there.
    """
    was = flatten(old)
    if "task" not in new:  # it follows from the data
        was = {key: value for key, value in was.items() if not key.startswith("task.")}
    for section in SECTIONS:
        usual = defaults(section, old[section].get("name"))
        was = {dotted(section, key): value for key, value in usual.items()} | was
    was["training.epochs"] = new.training.epochs
    was["checkpoints.keep"] = new.checkpoints.keep
    if min(was["seeds"], new.seeds) > 1:
        was["seeds"] = max(was["seeds"], new.seeds)
    return _names.differences(was, flatten(new))
