"""The table of options in docs/options.md, from their declarations: `python docs/_options.py`."""

import re
from collections.abc import Iterator
from pathlib import Path

from capsjax._options import Described
from capsjax.training import config as configs
from capsjax.training.optimizers import OPTIMIZERS, SCHEDULES

PAGE = Path(__file__).parent / "options.md"
PLACE = re.compile(r"(?<=<!-- options: python docs/_options.py -->\n)(?:\|.*\n)*")


def rows() -> Iterator[tuple[str, Described]]:
    """Lists a config's options for a data set, but not its network's, and what has each."""
    config = configs.default("sabour2017_capsnet", "mnist")
    described = configs.describe(config)
    for section in ("", "training", "loss", "data", "checkpoints"):
        yield from ((f"`{k}`", v) for k, v in described.items() if k.rpartition(".")[0] == section)
    for section, table in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
        seen = {f"{section}.name"}
        yield f"`{section}.name`", described[f"{section}.name"]
        common = set.intersection(*(set(configs.defaults(section, name)) for name in table))
        for name in table:
            config[section] = configs.defaults(section, name)
            for key, option in configs.describe(config).items():
                if key.startswith(f"{section}.") and key not in seen:
                    of = "" if key.removeprefix(f"{section}.") in common else f" of {name}"
                    seen.add(key)
                    yield f"`{key}`{of}", option


def page() -> str:
    """Returns docs/options.md with today's table in it."""
    lines = ["| option | default | allowed | what it does |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {name} | `{value!r}` | {allowed} | {text} |" for name, (value, allowed, text) in rows()
    ]
    table = "".join(f"{line}\n" for line in lines)
    return PLACE.sub(lambda _: table, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
