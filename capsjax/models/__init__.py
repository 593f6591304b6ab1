"""Networks by name: `create("sabour2017_capsnet", (28, 28, 1), 10, rngs=nnx.Rngs(0))`."""

from dataclasses import asdict, fields
from typing import Any

from flax import nnx

from capsjax._nearest import nearest
from capsjax.models.capsnet import CapsNet, CapsNetConfig
from capsjax.models.interface import Output

__all__ = ["CapsNet", "CapsNetConfig", "Output", "create", "names", "options"]

_MODELS: dict[str, tuple[type, Any]] = {
    "sabour2017_capsnet": (CapsNet, CapsNetConfig()),
}


def names() -> tuple[str, ...]:
    """The names that `create` knows."""
    return tuple(_MODELS)


def create(
    name: str,
    input_shape: tuple[int, int, int],
    num_classes: int,
    *,
    rngs: nnx.Rngs,
    **overrides: Any,
) -> nnx.Module:
    """Builds a network with fresh parameters.

    Args:
      name: one of `names()`.
      input_shape: height, width, channels.
      num_classes: number of class capsules.
      rngs: where the parameters come from, `nnx.Rngs(seed)`.
      **overrides: fields of the model's config, see `options(name)`.

    Raises:
      ValueError: unknown name or override (the nearest is named), sizes out of range.
    """
    model, config = _lookup(name)
    known = [field.name for field in fields(config)]
    for key in overrides:
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}: {nearest(key, known)}")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(
            f"input_shape must be (height, width, channels), all positive, got {input_shape}"
        )
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    config = type(config)(**asdict(config) | overrides)
    return model(tuple(input_shape), num_classes, config, rngs=rngs)


def options(name: str) -> dict[str, Any]:
    """Every option of the model `name` with its default."""
    return asdict(_lookup(name)[1])


def _lookup(name: str) -> tuple[type, Any]:
    if name not in _MODELS:
        raise ValueError(f"unknown model {name!r}: {nearest(name, names())}")
    return _MODELS[name]
