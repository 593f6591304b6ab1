"""NVIDIA GPUs, as XLA's compiler wants them described: from what is published about each."""

from dataclasses import dataclass
from typing import NamedTuple

_NVIDIA = "https://www.nvidia.com/en-us"


class _Limits(NamedTuple):
    """What one multiprocessor of a compute capability has.

    The table "Technical specifications per compute capability" of
    https://docs.nvidia.com/cuda/cuda-c-programming-guide, and the architectures' whitepapers.
    """

    shared_kib: int  # shared memory
    threads: int
    float32_units: int


_LIMITS = {
    (7, 0): _Limits(96, 2048, 64),
    (7, 5): _Limits(64, 1024, 64),
    (8, 0): _Limits(164, 2048, 64),
    (8, 6): _Limits(100, 1536, 128),
    (8, 9): _Limits(100, 1536, 128),
    (9, 0): _Limits(228, 2048, 128),
    (10, 0): _Limits(228, 2048, 128),
}


@dataclass(frozen=True)
class Gpu:
    """What is published about a GPU."""

    kind: str  # what JAX calls it
    capability: tuple[int, int]  # its compute capability, major and minor
    multiprocessors: int  # their number
    gigahertz: float  # of the boost clock
    memory: int  # bytes
    bandwidth: float  # of the memory, bytes per second
    cache_mib: float  # of the second-level cache
    interconnect: float  # bytes per second that it sends and receives, all links together
    page: str  # on NVIDIA's site

    @property
    def source(self) -> str:
        return f"{_NVIDIA}/{self.page}"


_GB = 10**9
GPUS = {
    "t4": Gpu("Tesla T4", (7, 5), 40, 1.59, 16 * _GB, 320e9, 4, 32e9, "data-center/tesla-t4"),
    "v100": Gpu(
        "Tesla V100-SXM2-16GB", (7, 0), 80, 1.53, 16 * _GB, 900e9, 6, 300e9, "data-center/v100"
    ),
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41, 80 * _GB, 2039e9, 40, 600e9, "data-center/a100"
    ),
    # JAX 0.12 has no A10G among the GPUs that it knows by name, but an A10 of the same capability.
    "a10g": Gpu(
        "NVIDIA A10", (8, 6), 80, 1.71, 24 * _GB, 600e9, 6, 64e9, "data-center/products/a10-gpu"
    ),
    "l4": Gpu("NVIDIA L4", (8, 9), 58, 2.04, 24 * _GB, 300e9, 48, 64e9, "data-center/l4"),
    "rtx4090": Gpu(
        *("NVIDIA GeForce RTX 4090", (8, 9), 128, 2.52, 24 * _GB, 1008e9, 72, 64e9),
        "geforce/graphics-cards/40-series/rtx-4090",
    ),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 1.98, 80 * _GB, 3350e9, 50, 900e9, "data-center/h100"
    ),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 1.98, 141 * _GB, 4800e9, 50, 900e9, "data-center/h200"),
    "b200": Gpu(
        *("NVIDIA B200", (10, 0), 148, 1.965, 180 * _GB, 8000e9, 126.5, 1800e9), "data-center/hgx"
    ),
}


def description(gpu: Gpu) -> str:
    """XLA's `GpuTargetConfigProto` for it, as text."""
    major, minor = gpu.capability
    limits = _LIMITS[gpu.capability]
    # A block may have all shared memory but 1 KiB of the system's, from capability 8.0 on.
    of_a_block = limits.shared_kib - (major >= 8)
    return f"""
gpu_device_info {{
  name: "{gpu.kind}"
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {major}.{minor}"
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {gpu.multiprocessors}
  fpus_per_core: {limits.float32_units}
  clock_rate_ghz: {gpu.gigahertz}
  memory_bandwidth: {int(gpu.bandwidth)}
  device_memory_size: {gpu.memory}
  l2_cache_size: {int(gpu.cache_mib * 2**20)}
  shared_memory_per_core: {limits.shared_kib * 2**10}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {of_a_block * 2**10}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_warp: 32
  threads_per_core_limit: {limits.threads}
  threads_per_block_limit: 1024
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  device_address_bits: 64
  ecc_enabled: true
  pcie_bandwidth: 32000000000
  driver_version: "13.0.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
device_description_str: "{gpu.kind}"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
"""
