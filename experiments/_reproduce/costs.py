"""What full scale would take on accelerators: estimates from what compile.py compiled."""

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import _configs
import jax
import jax.numpy as jnp
import ml_collections
from _compile import programs
from _compile.targets import CHIPS_BY_NAME
from flax import nnx

from _reproduce.experiment import Experiment
from _reproduce.recipes import key_of, trainings
from capsjax import models
from capsjax._files import write_atomically
from capsjax.data import tasks
from capsjax.training import config as configs
from capsjax.training.build import build, build_model

COMPILED = Path(__file__).parents[2] / "docs/accelerators/now.json"
COSTS = Path(__file__).with_name("costs.json")  # beside the code, so that the wheel has it


class Cost(NamedTuple):
    """Estimated hours of training all runs of a name at full scale, one run after another."""

    images: int  # that are shown in all
    v5e: float  # on one chip, by the compiler's cycles
    v5e_8: float  # on eight, if they are eight times as fast
    h100: float  # at the least, by the bytes that a step moves and the published rate of the memory

    def __str__(self) -> str:
        def hours(number: float) -> str:
            return "<0.1" if number < 0.1 else f"{number:.2g}" if number < 10 else f"{number:,.0f}"

        return " / ".join(map(hours, self[1:]))


def read() -> dict[str, Cost]:
    """Returns the estimates by name, as `write` left them."""
    return {name: Cost(**cost) for name, cost in json.loads(COSTS.read_text("utf-8")).items()}


def write(experiments: Mapping[str, Experiment]) -> dict[str, Cost]:
    """Estimates all names anew, which takes minutes, and keeps the result in `COSTS`."""
    costs = {name: estimate(experiment) for name, experiment in experiments.items()}
    text = json.dumps({name: cost._asdict() for name, cost in costs.items()}, indent=1)
    write_atomically(COSTS, f"{text}\n")
    return costs


def estimate(experiment: Experiment) -> Cost:
    """Estimates what all runs of an experiment would take at full scale."""
    once = {}
    for row in experiment.at("full").values():
        if row.network == "trained":
            for seed in range(experiment.scales["full"].seeds * row.members):
                for config in trainings(experiment, row, "full", seed, {}):
                    once[key_of(configs.to_json(config)), config.seed] = config
    shown = {key: images_shown(config) for key, config in once.items()}
    v5e, h100 = (
        sum(shown[key] * seconds_for_an_image(config, chip) for key, config in once.items()) / 3600
        for chip in ("v5e", "h100")
    )
    return Cost(sum(shown.values()), v5e, v5e / 8, h100)


def images_shown(config: ml_collections.ConfigDict) -> int:
    """Counts the images that a run trains on, if nothing stops it early."""
    batch = config.training.batch_size
    return config.training.epochs * (programs.num_examples(config) // batch) * batch


def seconds_for_an_image(config: ml_collections.ConfigDict, chip: str) -> float:
    """Returns the seconds of the most similar compiled network, times the ratio of the operations.

    The most similar is of the same class, if one is, and among these nearest in operations.
    """
    operations, own = operations_of(config), models.lookup(config.model.name).model
    compiled = _compiled(chip)
    alike = [step for step in compiled if models.lookup(step[0]).model is own] or compiled
    _, most_similar, seconds = min(alike, key=lambda step: abs(math.log(step[1] / operations)))
    return seconds * operations / most_similar


@cache
def _compiled(chip: str) -> list[tuple[str, float, float]]:
    """Returns the training steps of docs/accelerators.md that were compiled for a kind of chip.

    Each has the network's name, its operations, and the seconds that one image takes.
    """
    steps = []
    for record in json.loads(COMPILED.read_text("utf-8")):
        where = record["target"].partition(":")[0], record["group"], record["program"]
        changed = any(option.startswith("--config.") for option in record["options"])
        if where != (chip, "networks", "training") or changed or "estimated" not in record:
            continue
        (recipe,) = (o for o in record["options"] if o.startswith("--config="))
        config = _configs.read(recipe.removeprefix("--config="))
        milliseconds = record["estimated"]["milliseconds"]
        if milliseconds is None:
            milliseconds = 1e3 * record["bytes_moved"] / CHIPS_BY_NAME[chip].bandwidth
        on_one = record["devices"] * milliseconds / 1e3 / record["estimated"]["images"]
        steps.append((config.model.name, operations_of(config), on_one))
    return steps


def operations_of(config: ml_collections.ConfigDict) -> float:
    """Returns XLA's count for the network on one image; the body of a loop counts once."""
    task = tasks.create(**config.data, read=programs.blank)
    whole = build(config, task, jax.devices()[:1]).config
    return _operations(json.dumps(configs.to_json(whole), sort_keys=True))


@cache
def _operations(described: str) -> float:
    config = configs.from_json(json.loads(described))
    graphdef, state = nnx.split(nnx.eval_shape(lambda: build_model(config)))
    image = jax.ShapeDtypeStruct((1, *config.task.input_shape), jnp.float32)

    def forward(state: Any, image: jax.Array) -> Any:
        model = nnx.merge(graphdef, state)
        model.eval()
        return model(image)[:3]

    return jax.jit(forward).lower(state, image).cost_analysis()["flops"]
