"""Values of a config as they are written on a command line."""

import ast
from collections.abc import Mapping
from typing import Any

import ml_collections

from capsjax._names import nearest
from capsjax.training.config import OPTIONS, complete, flatten


def override(
    config: ml_collections.ConfigDict, texts: Mapping[str, str]
) -> ml_collections.ConfigDict:
    """A complete copy of `config` with other values.

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
    for section in OPTIONS:
        if (name := texts.get(f"{section}.name")) is not None:
            values[section] = renamed(section, values[section], name)
    known = flatten(ml_collections.ConfigDict(values))
    for key, text in texts.items():
        section, _, name = key.rpartition(".")
        if key in values and key not in known:
            raise ValueError(f"{key} is a section: set one of its values: {', '.join(values[key])}")
        if key not in known:
            siblings = [other for other in known if other.rpartition(".")[0] == section]
            raise ValueError(f"the config has no option {key!r}: {nearest(key, siblings or known)}")
        (values[section] if section else values)[name] = parse(text, known[key])
    return complete(ml_collections.ConfigDict(values))


def renamed(section: str, old: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options of `name`, with what `old` had changed from the defaults of its own name."""
    options = OPTIONS[section]
    before, after = options(old["name"]), options(name)
    changed = {
        key: value
        for key, value in old.items()
        if key != "name" and key in after and value != before.get(key)
    }
    return {"name": name} | after | changed | {"name": name}


def parse(text: str, current: Any) -> Any:
    """`text` as a value like `current`, or as it is, for `complete` to refuse, if it is not one."""
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
