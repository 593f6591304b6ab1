"""Values of a config as they are written on a command line."""

import ast
from collections.abc import Mapping
from typing import Any

import ml_collections

from capsjax._names import nearest
from capsjax.training.config import NAMED, complete, defaults, flatten


def override(
    config: ml_collections.ConfigDict, texts: Mapping[str, str]
) -> ml_collections.ConfigDict:
    """Returns a complete copy of `config` with other values.

    With another name of a network, data set, optimizer or schedule its section gets the options of
    that name. They have their defaults there, except what `config` had changed from the defaults
    of the old name, where the new one has such an option too.

    Args:
      config: see `capsjax.training.config.default`.
      texts: values by dotted key, such as {"optimizer.name": "sgd", "optimizer.momentum": "0.8"}.
        They take the types of the values that they replace.

    Raises:
      ValueError: what `complete` raises, before or after the change.
    """
    values = complete(config).to_dict()
    for section in NAMED:
        if (name := texts.get(f"{section}.name")) is not None:
            before, after = (defaults(section, n) for n in (values[section]["name"], name))
            changed = {key for key, value in values[section].items() if value != before[key]}
            values[section] = after | {key: values[section][key] for key in changed & after.keys()}
    known = flatten(ml_collections.ConfigDict(values))
    for key, text in texts.items():
        section, _, name = key.rpartition(".")
        if key not in known:
            raise ValueError(f"the config has no option {key!r}: {nearest(key, known)}")
        (values[section] if section else values)[name] = parse(text, known[key])
    return complete(ml_collections.ConfigDict(values))


def parse(text: str, current: Any) -> Any:
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
