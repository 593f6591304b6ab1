"""Which kernels programs are lowered with: their platform's, none, or another's, interpreted.

`CAPSJAX_KERNELS=off` in the environment turns kernels off, `without_kernels()` for a while.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from capsjax.routing.kernels.adapter import eager_program


class Settings(NamedTuple):
    """What all programs are lowered under."""

    enabled: bool
    interpreted: str | None = None  # a platform
    interpret: Any = False  # the argument of `pallas_call`


# What a program that is lowered now gets.
current = Settings(
    os.environ.get("CAPSJAX_KERNELS", "on").lower() not in ("off", "0", "false", "no")
)


@contextlib.contextmanager
def _under(settings: Settings) -> Iterator[None]:
    global current
    before, current = current, settings
    eager_program.cache_clear()
    try:
        yield
    finally:
        current = before
        eager_program.cache_clear()


def without_kernels() -> contextlib.AbstractContextManager[None]:
    """Programs lowered inside the block have no kernels; those already compiled keep theirs."""
    return _under(current._replace(enabled=False))


def interpreted(
    platform: Literal["tpu", "cuda"], mode: Any = True
) -> contextlib.AbstractContextManager[None]:
    """Programs lowered inside the block have the kernels of `platform`, interpreted, anywhere.

    This is slow: it serves to find errors. `mode` is what `pallas_call` takes as `interpret`, such
    as `pltpu.InterpretParams(…)`.
    """
    return _under(current._replace(interpreted=platform, interpret=mode))
