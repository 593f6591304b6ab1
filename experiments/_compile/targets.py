"""What a program can be compiled for: slices of TPUs, NVIDIA GPUs, and the CPU."""

import contextlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from _compile import compilers


class Gpu(NamedTuple):
    """What XLA's compiler is told of a GPU, besides its memory."""

    kind: str  # what JAX calls it
    capability: tuple[int, int]  # its compute capability, major and minor
    multiprocessors: int  # their number
    gigahertz: float  # of the boost clock
    cache_mib: float  # of the second-level cache


class Chip(NamedTuple):
    """What is published about one device, as JAX counts devices."""

    name: str  # of the target, before the colon
    platform: str  # "tpu", "gpu" or "cpu"
    memory: int | None = None  # bytes
    bandwidth: float | None = None  # of the memory, bytes per second
    # 10⁹ cycles per second, to make seconds of the compiler's cycles; TPUs only
    gigahertz: float | None = None
    # bytes per second that it sends and receives, all links and directions together; TPUs only
    interconnect: float | None = None
    gpu: Gpu | None = None


# TPUs: https://cloud.google.com/tpu/docs, a page each. Google publishes no clock. It is the peak in
# bfloat16 over the operations of all matrix units in a cycle: 4 units of 128² (v5e), 8 (v5p, both
# cores of a chip are one device), and as many as 4 units of 256² for v6e and each of a TPU7x's two
# cores, since by the compiler's cycles a product of 8192² matrices does 369,000 and 422,000
# operations in each, which 2 units could not.
# GPUs: https://www.nvidia.com/en-us, a page each below data-center/ (rtx4090: below geforce/).
# JAX 0.12 has no A10G among the GPUs that it knows by name, but an A10 of the same capability.
_GB = 10**9
CHIPS_BY_NAME = {
    chip.name: chip
    for chip in (
        Chip("v5e", "tpu", 16 * 2**30, 819e9, 197e12 / 2**17 / 1e9, 400e9),
        Chip("v5p", "tpu", 95 * 2**30, 2765e9, 459e12 / 2**18 / 1e9, 1200e9),
        Chip("v6e", "tpu", 32 * 2**30, 1638e9, 918e12 / 2**19 / 1e9, 800e9),
        Chip("TPU7x", "tpu", 96 * 2**30, 3690e9, 1153.5e12 / 2**19 / 1e9, 600e9),
        *(
            Chip(name, "gpu", memory, bandwidth, gpu=Gpu(*gpu))
            for name, memory, bandwidth, *gpu in (
                ("t4", 16 * _GB, 320e9, "Tesla T4", (7, 5), 40, 1.59, 4),
                ("v100", 16 * _GB, 900e9, "Tesla V100-SXM2-16GB", (7, 0), 80, 1.53, 6),
                ("a100", 80 * _GB, 2039e9, "NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41, 40),
                ("a10g", 24 * _GB, 600e9, "NVIDIA A10", (8, 6), 80, 1.71, 6),
                ("l4", 24 * _GB, 300e9, "NVIDIA L4", (8, 9), 58, 2.04, 48),
                ("rtx4090", 24 * _GB, 1008e9, "NVIDIA GeForce RTX 4090", (8, 9), 128, 2.52, 72),
                ("h100", 80 * _GB, 3350e9, "NVIDIA H100 80GB HBM3", (9, 0), 132, 1.98, 50),
                ("h200", 141 * _GB, 4800e9, "NVIDIA H200", (9, 0), 132, 1.98, 50),
                ("b200", 180 * _GB, 8000e9, "NVIDIA B200", (10, 0), 148, 1.965, 126.5),
            )
        ),
        Chip("cpu", "cpu"),
    )
}
# Of one multiprocessor, by compute capability: shared memory in KiB, threads, float32 units. From
# the table "Technical specifications per compute capability" of
# https://docs.nvidia.com/cuda/cuda-c-programming-guide, and the architectures' whitepapers.
_LIMITS = {
    (7, 0): (96, 2048, 64),
    (7, 5): (64, 1024, 64),
    (8, 0): (164, 2048, 64),
    (8, 6): (100, 1536, 128),
    (8, 9): (100, 1536, 128),
    (9, 0): (228, 2048, 128),
    (10, 0): (228, 2048, 128),
}


class Target(NamedTuple):
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
        known = ", ".join(CHIPS_BY_NAME)
        raise ValueError(f"unknown target {name!r}: use one of {known}, as in v5e:2x4 or h100:8")
    return Target(name, chip, f"1x1x{size or 1}" if chip.platform == "gpu" else size)


@cache
def devices(target: Target) -> Sequence[Any]:
    """Lists the devices of `target`; those of TPUs and GPUs are only to be compiled for."""
    import jax
    from jax.experimental import topologies

    if target.platform == "cpu":
        return jax.devices("cpu")[:1]
    compilers.check(target.platform)
    compilers.dumps()  # raises if they were not enabled
    jax.devices()  # the CPU, before there are plugins that would look for their devices
    options: dict[str, Any] = {"platform": "tpu"}
    if target.chip.gpu is not None:
        options = {"platform": "cuda", "topology": target.topology}
        options["target_config"] = _description(target.chip)
    try:
        return topologies.get_topology_desc(topology_name=target.name, **options).devices
    except jax.errors.JaxRuntimeError as error:  # no slice has this size
        raise ValueError(f"unknown target {target.name!r}: {error}") from error


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


def _description(chip: Chip) -> str:
    """XLA's `GpuTargetConfigProto` for a GPU, as text."""
    gpu = chip.gpu
    shared_kib, threads, float32_units = _LIMITS[gpu.capability]
    # A block may have all shared memory but 1 KiB of the system's, from capability 8.0 on.
    text = Path(__file__).with_name("gpu.textproto").read_text(encoding="utf-8")
    return text.format(
        chip=chip,
        gpu=gpu,
        float32_units=float32_units,
        threads=threads,
        cache=int(gpu.cache_mib * 2**20),
        shared=shared_kib * 2**10,
        shared_of_a_block=(shared_kib - (gpu.capability >= (8, 0))) * 2**10,
    )
