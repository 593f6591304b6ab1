"""Values of a config as they are written on a command line."""

import ast
from collections.abc import Mapping
from types import NoneType
from typing import Any

import ml_collections

from capsjax._names import nearest
from capsjax.training.config import OPTIONS, flatten


def override(
    config: ml_collections.ConfigDict, texts: Mapping[str, str]
) -> ml_collections.ConfigDict:
    """A copy of `config` with other values.

    With another name of a network, data set, optimizer or schedule its section gets the options of
    that name. They have their defaults there, except what `config` had changed from the defaults
    of the old name, where the new one has such an option too.

    Args:
      config: see `capsjax.training.config.default`.
      texts: values by dotted key, such as {"optimizer.name": "sgd", "optimizer.momentum": "0.8"}.
        They take the types of the values that they replace.

    Raises:
      ValueError: an unknown key or name (the nearest is named), or a value of another type.
    """
    flatten(config)  # raises if it is not sound
    config = ml_collections.ConfigDict(config.to_dict())
    for section in OPTIONS:
        if (name := texts.get(f"{section}.name")) is not None:
            if not isinstance(config.get(section), ml_collections.ConfigDict):
                raise ValueError(f"the config has no section {section!r}")
            if not isinstance(config[section].get("name"), str):
                raise ValueError(f"the config has no {section}.name, a string")
            config[section] = renamed(section, config[section].to_dict(), name)
    config.lock()
    for key, text in texts.items():
        *path, last = key.split(".")
        owner: Any = config
        for i, part in enumerate([*path, last]):
            if not isinstance(owner, ml_collections.ConfigDict) or part not in owner:
                where = ".".join(["config", *path[:i]])
                known = owner.keys() if isinstance(owner, ml_collections.ConfigDict) else ()
                raise ValueError(f"{where} has no key {part!r}: {nearest(part, known)}")
            owner = owner[part] if i < len(path) else owner
        owner[last] = parse(f"config.{key}", text, owner[last])
    return config


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


def parse(key: str, text: str, current: Any) -> Any:
    """`text` as a value of the type of `current`; raises ValueError if it is not one."""
    if isinstance(current, ml_collections.ConfigDict):
        raise ValueError(
            f"{key} is a section: set one of its values, such as {key}.{next(iter(current))}"
        )
    if isinstance(current, str):
        return text
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        value = tuple(text.split(",")) if isinstance(current, tuple) and text else text
    if isinstance(current, tuple) and not isinstance(value, tuple | list):
        value = (value,) if text else ()
    kinds: Any = {
        bool: bool,
        int: int,
        float: int | float,
        tuple: tuple | list,
        NoneType: int | None,
    }.get(type(current), object)
    if not isinstance(value, kinds) or (isinstance(value, bool) and not isinstance(current, bool)):
        expected = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            NoneType: "a whole number or None",
        }
        raise ValueError(f"{key} must be {expected[type(current)]}, got {text!r}")
    if isinstance(current, float):
        return float(value)
    return tuple(value) if isinstance(current, tuple) else value
