"""The cost of a forward pass: parameters, memory, time (Tsai et al. 2020, figure 4)."""

import statistics
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Num

from capsjax.evaluation.batches import merged
from capsjax.training.state import num_parameters


class Cost(NamedTuple):
    """The cost of the scores of one batch on the default device."""

    parameters: int  #: trainable numbers
    argument_bytes: int  #: of parameters, statistics and images
    temporary_bytes: int  #: further memory that the compiler plans for while the program runs
    seconds: tuple[float, ...]  #: of each call, without the first one after compiling

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)


def inference_cost(
    model: nnx.Module, images: Num[Array | np.ndarray, "n h w c"], *, repeats: int = 10
) -> Cost:
    """Compiles `model(images).scores` and measures `repeats` calls; the paper's images are 128."""
    graphdef, state = nnx.split(model)
    scores = jax.jit(lambda state, images: merged(graphdef, state)(images).scores)
    arguments = jax.device_put((state, images))
    compiled = scores.lower(*arguments).compile()
    memory: Any = compiled.memory_analysis()
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - began)
    return Cost(
        parameters=num_parameters(model),
        argument_bytes=memory.argument_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        seconds=tuple(seconds[1:]),
    )
