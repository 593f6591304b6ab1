"""Networks by name: `create("sabour2017_capsnet", (28, 28, 1), 10, rngs=nnx.Rngs(0))`.

Each family file ends with the table of its `NETWORKS`; `register` adds a network of your own.
"""

from dataclasses import asdict, fields, replace
from typing import Any

from flax import nnx

from capsjax._names import check_kind, check_options, did_you_mean
from capsjax._options import tuples
from capsjax.models import (
    capsnet,
    choi2019,
    convnets,
    efficient_capsnet,
    lin2018,
    pictures,
    slots,
    tsai2020,
)
from capsjax.models.capsnet import CapsNet as CapsNet
from capsjax.models.capsnet import CapsNetConfig as CapsNetConfig
from capsjax.models.model import Model as Model
from capsjax.models.model import Network as Network
from capsjax.models.model import Output as Output
from capsjax.models.model import ScoreKind as ScoreKind

_PUBLISHED: dict[str, Network] = {}
for _family in (capsnet, convnets, lin2018, choi2019, tsai2020, efficient_capsnet, pictures, slots):
    _PUBLISHED |= _family.NETWORKS
_REGISTERED: dict[str, Network] = {}


def names() -> tuple[str, ...]:
    """Returns the names that `create` knows."""
    return (*_PUBLISHED, *_REGISTERED)


def create(
    name: str,
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    rngs: nnx.Rngs,
    **overrides: Any,
) -> nnx.Module:
    """Builds a network with fresh parameters, in training mode: see `model.eval()`.

    Args:
      name: one of `names()`.
      input_shape: height, width, channels.
      rngs: the source of the parameters, `nnx.Rngs(seed)`.
      **overrides: fields of the model's config, see `options(name)`.
    """
    network = lookup(name)
    check_options(name, overrides, [field.name for field in fields(network.config)])
    check_kind("input_shape", input_shape, (28, 28, 1))
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(f"input_shape must be (height, width, channels), got {input_shape}")
    check_kind("num_classes", num_classes, 10)
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    config = replace(network.config, **tuples(overrides))
    return network.model(tuple(input_shape), num_classes, config, rngs=rngs)


def options(name: str) -> dict[str, Any]:
    """Returns every option of the model `name` with its default."""
    return asdict(lookup(name).config)


def lookup(name: str) -> Network:
    """Returns the class, config and published sizes behind `name`."""
    if name not in names():
        raise ValueError(
            f"unknown model {name!r}: {did_you_mean(name, names())}. Register your own with "
            "capsjax.models.register(...), in scripts with --import=FILE.py"
        )
    return _REGISTERED.get(name) or _PUBLISHED[name]


def register(name: str, model: type[nnx.Module], config: Any) -> None:
    """Registers your own network for `create`; do so in each process that trains or restores it.

    Args:
      name: not that of a published network; registering it again replaces the network.
      model: called as `model(input_shape, num_classes, config, rngs=rngs)`; its calls
        `model(images, *, mask=None, keys=None, capture=False)` return an `Output`.
      config: the default options: an instance of a frozen dataclass of numbers, strings, booleans,
        None and tuples of them.
    """
    for option, value in asdict(config).items():  # a TypeError unless it is a dataclass's instance
        for part in value if isinstance(value, tuple) else (value,):
            if not isinstance(part, int | float | str | None):
                kinds = "numbers, strings, booleans and tuples of them"
                raise ValueError(f"a config has {kinds}, got {option} = {value!r}")
    if name in _PUBLISHED:
        raise ValueError(f"{name!r} is a published network: choose another name")
    _REGISTERED[name] = Network(model, config)
