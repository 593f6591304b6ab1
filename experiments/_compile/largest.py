"""The largest batch whose training fits a target."""

from collections.abc import Sequence
from typing import Any

import ml_collections
from rich.console import Console

from _compile.crosscompile import DoesNotFit, compile_lowered
from _compile.programs import num_examples, programs
from _compile.targets import Target


def largest_batch(
    config: ml_collections.ConfigDict, target: Target, devices: Sequence[Any], terminal: Console
) -> int:
    """Finds the largest batch that fits, to a sixteenth, by bisection over compilations.

    It is at most the number of training images."""

    def fits(per_device: int) -> bool:
        trial = config.copy_and_resolve_references()
        trial.training.batch_size = per_device * len(devices)
        try:
            memory = compile_lowered(target, programs(trial, devices)["training"]).memory
        except DoesNotFit:
            terminal.print(f"  batch {trial.training.batch_size:,}: does not fit")
            return False
        terminal.print(f"  batch {trial.training.batch_size:,}: {memory.total / 1e9:.2f} GB")
        return True

    limit = num_examples(config) // len(devices)
    low, high = 0, min(limit, max(1, config.training.batch_size // len(devices)))
    while fits(high):
        if high == limit:
            return high * len(devices)
        low, high = high, min(limit, 2 * high)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if not low:
        raise ValueError(f"not even one image on each {target.chip.name} fits")
    return low * len(devices)
