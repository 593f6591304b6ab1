"""What a checkpoint or a released file says about itself: its config, its history and its step.

Both hold it as JSON, which others may have written: `parse` is the one place that checks it.
"""

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from capsjax.models.model import Model
from capsjax.runs.circumstances import Circumstances
from capsjax.runs.history import History
from capsjax.training import config as configs


class About(NamedTuple):
    """What stands beside the variables of a network.

    Attributes:
      config: of the run, with `task`.
      history: of its metrics.
      circumstances: in which it was trained.
    """

    config: ml_collections.ConfigDict
    history: History
    circumstances: Circumstances

    def to_json(self) -> dict[str, Any]:
        """What `parse` takes."""
        return {
            "config": configs.to_json(self.config),
            "history": self.history.to_json(),
            "circumstances": self.circumstances,
        }


class Checkpoint(NamedTuple):
    """One restored model.

    Attributes:
      model: the network, parameters in place.
      config: of the run; `config.task` holds `input_shape` and `class_names`.
      history: the run's metrics up to this step.
      step: number of training steps behind it.
    """

    model: Model
    config: ml_collections.ConfigDict
    history: History
    step: int


def parse(tree: Any, source: object) -> About:
    """The inverse of `About.to_json`; raises ValueError that names `source` for anything else."""
    try:
        values = _dict(tree, "its metadata")
        config = _dict(values.get("config"), "config")
        for section in ("model", "data", "optimizer", "schedule", "training"):
            _dict(config.get(section), section)
        for section in ("model", "data"):
            _check(isinstance(config[section].get("name"), str), f"{section}.name", "a string")
        task = _dict(config.get("task"), "task")
        shape: Any = task.get("input_shape")
        classes: Any = task.get("class_names")
        is_shape = (
            isinstance(shape, list)
            and len(shape) == 3
            and all(type(size) is int and size > 0 for size in shape)
        )
        _check(is_shape, "task.input_shape", "three positive integers")
        is_classes = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
        _check(is_classes and bool(classes), "task.class_names", "strings, one for each class")
        _check(type(config.get("seed")) is int, "seed", "an integer")
        version, latest = config.get("key_version", 1), configs.KEY_VERSION
        known = type(version) is int and 1 <= version <= latest
        _check(known, "key_version", f"from 1 to {latest}, or was it made by a later capsjax?")
        return About(
            configs.from_json(config),
            _history(values.get("history")),
            _dict(values.get("circumstances", {}), "circumstances"),
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source}: {error}") from None


def check_finite(variables: Mapping[str, Any], source: object) -> None:
    """Raises ValueError that names `source` and a variable with NaN or infinity in it."""
    for path, array in variables.items():
        # bfloat16 is not a floating type of NumPy's.
        if np.asarray(array).dtype.kind not in "biu" and not np.isfinite(array).all():
            raise ValueError(f"{source}: {path} holds numbers that are not finite")


def _history(tree: Any) -> History:
    values = _dict(tree, "history")
    records: Any = values.get("records")
    _check(isinstance(records, list), "history.records", "a list")
    for record in records:
        _dict(record, "each of history.records")
        numbers = [record.get("step"), record.get("epoch")]
        if record.get("split") == "validation":
            numbers.append(record.get("accuracy"))
        good = isinstance(record.get("split"), str) and all(isinstance(n, Real) for n in numbers)
        _check(good, "each of history.records", "a split, a step, an epoch and metrics")
    return History(records, _dict(values.get("open_sums"), "history.open_sums"))


def _dict(value: Any, name: str) -> dict[str, Any]:
    _check(isinstance(value, dict), name, "an object of JSON", value)
    return value


def _check(good: bool, name: str, expected: str, value: Any = None) -> None:
    if not good:
        raise ValueError(
            f"{name} must be {expected}" + f", got {value!r}"[:80] * (value is not None)
        )
