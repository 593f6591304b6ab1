"""Which arithmetic a shape gets on which platform: one table.

| platform | poses                                              | form                           |
| -------- | -------------------------------------------------- | ------------------------------ |
| cpu      | matrices, A·X·Y ≤ 256                              | loops: unrolled, in blocks     |
| tpu      | matrices, A·X·Y ≤ 512; vectors, J·X·Y ≤ 24,576     | kernel: Pallas through Mosaic  |
| cuda     | A·X·Y ≤ 256, J ≤ 512; compute capability ≥ 8.0     | kernel: Pallas through Triton  |
| any      | everything else                                    | products: einsum, in blocks    |

Kernels take float32, which bfloat16 operands have become before they come here, and run on one
device: under `jax.pmap`, `jax.shard_map` and `jit` on a mesh of explicit axes that divide the batch
each device runs its own, but a program that XLA divides over devices by itself (other meshes) gets
products, which XLA can divide.
`jax.export` for cuda gets products too, since Triton kernels have no portable form. So do GPUs
before Ampere (T4, V100), GPUs whose compute capability is unknown when a program is lowered, and
versions of JAX without Pallas through Triton, which 0.11 deprecated.
"""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from capsjax.routing.kernels import cpu, einsum, settings
from capsjax.routing.kernels.adapter import Target
from capsjax.routing.kernels.terms import Operands, Sizes

_LARGEST_LOOP = 256  # multiplications in a pose product, unrolled, that suit XLA on a CPU
_LARGEST_KERNEL = {"tpu": 512, "cuda": 256}  # the same in a kernel, to compile in seconds
_LARGEST_VECTOR_KERNEL = 24 * 1024  # weights of a child: those of 128 fit on a TPU's chip
_MOST_PARENTS = 512  # in one tile of a Triton kernel
_LEAST_CAPABILITY = (8, 0)  # Ampere
_MOST_ELEMENTS = 2**31 - 1  # that a Triton kernel can count


class Form(NamedTuple):
    """One way to do the arithmetic. What it cannot do in one pass is composed of derivatives."""

    name: str
    differentiate: Callable[..., Array]  # a derivative of E, Q or G that TERMS has
    is_kernel: bool = False  # it runs on one device only
    attend: Callable[..., Array] | None = None  # a whole iteration of routing by agreement
    attend_backward: Callable[..., Operands] | None = None  # its gradients
    sums: Callable[..., tuple[Array, Array]] | None = None  # Σ_i c_ij v_ij and Σ_i c_ij
    gradients: Callable[..., Operands] | None = None  # several derivatives of E + Q


LOOPS = Form("loops", cpu.differentiate)
PRODUCTS = Form("products", einsum.differentiate)


def choose(target: Target, sizes: Sizes, dtype: Any) -> Form:
    """Returns the form that votes of these sizes get in a program for `target`."""
    platform = settings.current.interpreted or target.platform
    if platform == "cpu" and isinstance(sizes.positions, int):
        small = sizes.rows > 1 and sizes.products <= _LARGEST_LOOP
        return LOOPS if small else PRODUCTS
    return _kernels(platform, sizes) if _has_kernel(platform, target, sizes, dtype) else PRODUCTS


def _has_kernel(platform: str, target: Target, sizes: Sizes, dtype: Any) -> bool:
    """Tells whether there is a kernel: the table above."""
    if platform not in _LARGEST_KERNEL or not settings.current.enabled or target.divided:
        return False
    if dtype != jnp.float32 or not isinstance(sizes.positions, int):
        return False
    if not all((sizes.positions, *sizes[1:])):  # there is nothing to compute
        return False
    if platform == "tpu" and sizes.rows == 1:
        return sizes.parents * sizes.products <= _LARGEST_VECTOR_KERNEL
    if sizes.products > _LARGEST_KERNEL[platform]:
        return False
    if platform == "tpu":
        return True
    children = sizes.children * max(sizes.parents, sizes.rows * sizes.columns)
    largest = sizes.positions * max(children, sizes.parents * sizes.rows * sizes.width)
    fits = sizes.parents <= _MOST_PARENTS and largest <= _MOST_ELEMENTS
    return fits and not target.exported and _has_triton(target)


def _has_triton(target: Target) -> bool:
    """Tells whether the GPUs are known to be of Ampere or later, and JAX has Pallas for Triton."""
    if settings.current.interpreted:
        return True
    recent = target.capability is not None and target.capability >= _LEAST_CAPABILITY
    return recent and importlib.util.find_spec("jax.experimental.pallas.triton") is not None


def _kernels(platform: str, sizes: Sizes) -> Form:
    # Pallas is imported where a program needs it: elsewhere it would double the time of an import.
    if platform == "cuda":
        from capsjax.routing.kernels import gpu

        return Form("kernel", gpu.differentiate, True, gpu.attend, gpu.attend_backward)
    if sizes.rows == 1:  # whole iterations alone are kernels
        from capsjax.routing.kernels import tpu_vectors as vectors

        return Form("kernel", einsum.differentiate, True, vectors.attend, vectors.attend_backward)
    from capsjax.routing.kernels import tpu

    whole = (tpu.attend, tpu.attend_backward, tpu.sums, tpu.gradients)
    return Form("kernel", tpu.differentiate, True, *whole)
