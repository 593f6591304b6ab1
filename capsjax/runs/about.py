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
    """What stands beside the variables of a network."""

    config: ml_collections.ConfigDict  # of the run, with `task`
    history: History  # of its metrics
    circumstances: Circumstances  # in which it was trained

    def to_json(self) -> dict[str, Any]:
        """Returns what `parse` takes."""
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


# The types of the values that others rely on; for a list, the type of its elements.
_SCHEMA = {
    "config": {
        **{section: {} for section in ("optimizer", "schedule", "training")},
        "model": {"name": str},
        "data": {"name": str},
        "task": {"input_shape": [int], "class_names": [str]},
        "seed": int,
    },
    "history": {"records": [{"split": str, "step": Real, "epoch": Real}], "open_sums": {}},
}
_KINDS = {dict: "an object of JSON", list: "a list", str: "a string", int: "an integer"}


def _check(name: str, value: Any, schema: Any) -> None:
    """Raises ValueError unless `value` is of the kinds in `schema`."""
    kind: Any = schema if isinstance(schema, type) else type(schema)
    if not isinstance(value, kind):
        expected = f"{name or 'its metadata'} must be {_KINDS.get(kind, 'a number')}"
        raise ValueError(expected + f", got {value!r}"[:80])
    for key in schema if kind is dict else ():
        _check(f"{name}.{key}".lstrip("."), value.get(key), schema[key])
    for element in value if kind is list else ():
        _check(f"each of {name}", element, schema[0])


def parse(tree: Any, source: object) -> About:
    """Inverts `About.to_json`; raises ValueError, which names `source`, for anything else."""
    try:
        _check("", tree, _SCHEMA)
        config, history = tree["config"], tree["history"]
        shape, version = config["task"]["input_shape"], config.get("key_version", 1)
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(f"task.input_shape must be three positive integers, got {shape}")
        if not config["task"]["class_names"]:
            raise ValueError("task.class_names must be strings, one for each class")
        if version not in range(1, configs.KEY_VERSION + 1):
            raise ValueError(
                f"key_version must be from 1 to {configs.KEY_VERSION}, got {version!r}: was it "
                "made by a later capsjax?"
            )
        for record in history["records"]:
            if record["split"] == "validation":
                _check("accuracy of each validation", record.get("accuracy"), Real)
        return About(
            configs.from_json(config),
            History(history["records"], history["open_sums"]),
            tree.get("circumstances", {}),
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source}: {error}") from None


def check_finite(variables: Mapping[str, Any], source: object) -> None:
    """Raises ValueError that names `source` and a variable with NaN or infinity in it."""
    for path, array in variables.items():
        # bfloat16 is not a floating type of NumPy's.
        if np.asarray(array).dtype.kind not in "biu" and not np.isfinite(array).all():
            raise ValueError(f"{source}: {path} holds numbers that are not finite")
