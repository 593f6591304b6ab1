"""What a program can be compiled for: slices of TPUs, NVIDIA GPUs, and the CPU."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from _compile import compilers, gpus
from _compile.gpus import Gpu
from capsjax._names import nearest


@dataclass(frozen=True)
class Chip:
    """What is published about one device, as JAX counts devices."""

    name: str  # of the target, before the colon
    platform: str  # "tpu", "gpu" or "cpu"
    memory: int | None = None  # bytes
    bandwidth: float | None = None  # of the memory, bytes per second
    # 10⁹ cycles per second, to make seconds of the compiler's cycles; TPUs only
    gigahertz: float | None = None
    # bytes per second that it sends and receives, all links and directions together
    interconnect: float | None = None
    source: str = ""  # where that is published
    gpu: Gpu | None = None  # what else the compiler is told of a GPU


_TPU = "https://cloud.google.com/tpu/docs"
# Google publishes no clock. It is the peak in bfloat16 over the operations of all matrix units in a
# cycle: 4 units of 128² (v5e), 8 (v5p, both cores of a chip are one device), and as many as 4 units
# of 256² for v6e and each of a TPU7x's two cores, since by the compiler's cycles a product of
# 8192² matrices does 369,000 and 422,000 operations in each, which 2 units could not.
CHIPS_BY_NAME = {
    chip.name: chip
    for chip in (
        Chip("v5e", "tpu", 16 * 2**30, 819e9, 197e12 / 2**17 / 1e9, 400e9, f"{_TPU}/v5e"),
        Chip("v5p", "tpu", 95 * 2**30, 2765e9, 459e12 / 2**18 / 1e9, 1200e9, f"{_TPU}/v5p"),
        Chip("v6e", "tpu", 32 * 2**30, 1638e9, 918e12 / 2**19 / 1e9, 800e9, f"{_TPU}/v6e"),
        Chip("TPU7x", "tpu", 96 * 2**30, 3690e9, 1153.5e12 / 2**19 / 1e9, 600e9, f"{_TPU}/tpu7x"),
        *(
            Chip(name, "gpu", gpu.memory, gpu.bandwidth, None, gpu.interconnect, gpu.source, gpu)
            for name, gpu in gpus.GPUS.items()
        ),
        Chip("cpu", "cpu"),
    )
}
# For messages: slices that Google offers, and what else there is.
EXAMPLES = (
    *("v5e:2x2", "v5e:2x4", "v5e:4x4", "v5e:8x8", "v5e:16x16", "v5p:2x2x1", "v5p:2x2x2"),
    *("v5p:4x4x4", "v5p:4x8x8", "v6e:2x2", "v6e:2x4", "v6e:16x16", "TPU7x:2x2x1", "TPU7x:2x2x2"),
    *gpus.GPUS,
    *("a100:8", "h100:8", "h200:8", "b200:8", "cpu"),
)


@dataclass(frozen=True)
class Target:
    """A machine to compile for."""

    name: str  # as a user writes it: `v5e:2x4`, `h100`, `h100:8`, `cpu`
    chip: Chip  # of which it has some
    topology: str  # as the compiler wants to be told: "2x4", or for GPUs "1x1x8"

    @property
    def platform(self) -> str:
        return self.chip.platform


def find(name: str) -> Target:
    """Returns the target called `name`."""
    family, _, size = name.partition(":")
    chip = CHIPS_BY_NAME.get(family)
    sizes = {"tpu": r"\d+x\d+(x\d+)?", "gpu": r"\d*", "cpu": ""}
    if not chip or not re.fullmatch(sizes[chip.platform], size):
        raise ValueError(f"unknown target {name!r}: {nearest(name, EXAMPLES)}")
    return Target(name, chip, f"1x1x{size or 1}" if chip.platform == "gpu" else size)


@cache
def devices(target: Target) -> Sequence[Any]:
    """Lists the devices of `target`; those of TPUs and GPUs are only to be compiled for."""
    import jax
    from jax.experimental import topologies

    if target.platform == "cpu":
        return jax.devices("cpu")[:1]
    compilers.check(target.platform)
    if not compilers.enabled():
        raise RuntimeError("compilers.enable() was not called before JAX was imported")
    jax.devices()  # the CPU, before there are plugins that would look for their devices
    try:
        if target.chip.gpu is None:
            topology = topologies.get_topology_desc(platform="tpu", topology_name=target.name)
        else:
            topology = topologies.get_topology_desc(
                platform="cuda",
                topology_name=target.name,
                target_config=gpus.description(target.chip.gpu),
                topology=target.topology,
            )
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(
            f"the compiler knows no {target.name!r}: {error}. {nearest(target.name, EXAMPLES)}"
        ) from error
    return topology.devices


def abstract_device(target: Target) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which JAX lowers kernels for `target`'s GPU, where no GPU is attached.

    JAX 0.12 refuses to lower a Triton kernel for a GPU that it is told nothing of.
    """
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh

    if target.chip.gpu is None:
        return contextlib.nullcontext()
    device = AbstractDevice(target.chip.gpu.kind, target.chip.gpu.multiprocessors, "gpu")
    return jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device))
