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
before Ampere (T4, V100), GPUs that a program is lowered for without a word on which they are, and
a JAX without Pallas through Triton, which 0.11 deprecated.

`CAPSJAX_KERNELS=off` in the environment turns kernels off, `without_kernels()` for a while.
"""

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from capsjax.routing.kernels import cpu, einsum
from capsjax.routing.kernels.adapter import Target, eager_program
from capsjax.routing.kernels.terms import Sizes

LARGEST_LOOP = 256  # multiplications in a pose product, unrolled, that suit XLA on a CPU
LARGEST_KERNEL = {"tpu": 512, "cuda": 256}  # the same in a kernel, to compile in seconds
_LARGEST_VECTOR_KERNEL = 24 * 1024  # numbers for one child: a TPU's chip holds 128
_MOST_PARENTS = 512  # in one tile of a Triton kernel
_LEAST_CAPABILITY = (8, 0)  # Ampere
_MOST_ELEMENTS = 2**31 - 1  # that a Triton kernel can count


class Form(NamedTuple):
    """One way to do the arithmetic.

    Attributes:
      name: of the form.
      differentiate: a derivative of E, Q or G.
      is_kernel: whether it runs on one device only.
      attend: a whole iteration of routing by agreement; None for two derivatives of E.
      attend_backward: the gradients of that.
      sums: Σ_i c_ij v_ij and Σ_i c_ij in one pass; None for one at a time.
      gradients: several derivatives of E + Q in one pass; None for one at a time.
    """

    name: str
    differentiate: Callable[..., Array]
    is_kernel: bool = False
    attend: Callable[..., Array] | None = None
    attend_backward: Callable[..., dict[str, Array]] | None = None
    sums: Callable[..., tuple[Array, Array]] | None = None
    gradients: Callable[..., dict[str, Array]] | None = None


LOOPS = Form("loops", cpu.differentiate)
PRODUCTS = Form("products", einsum.differentiate)


def choose(target: Target, sizes: Sizes, dtype: Any) -> Form:
    """Returns the form that votes of these sizes get in a program for `target`."""
    platform = _settings.interpreted or target.platform
    if platform == "cpu" and isinstance(sizes.positions, int):
        small = sizes.rows > 1 and sizes.products <= LARGEST_LOOP
        return LOOPS if small else PRODUCTS
    if why_no_kernel(target, sizes, dtype) is not None:
        return PRODUCTS
    return _kernels(platform, sizes)


def why_no_kernel(target: Target, sizes: Sizes, dtype: Any) -> str | None:
    """Returns the reason why votes of these sizes get no kernel, or None if they do."""
    platform = _settings.interpreted or target.platform
    if platform not in ("tpu", "cuda"):
        return f"there is no kernel for {platform}"
    if not _settings.enabled:
        return "kernels are turned off"
    if (
        platform == "cuda"
        and not _settings.interpreted
        and (reason := _why_no_triton(target.capability))
    ):
        return reason
    if target.divided:
        return "XLA divides the program over devices"
    if target.exported and platform == "cuda":
        return "the program is exported"
    if not isinstance(sizes.positions, int):
        return "the program is exported for batches of any size"
    if dtype != jnp.float32:
        return f"{jnp.dtype(dtype).name} is computed by XLA"
    if not all((sizes.positions, *sizes[1:])):
        return "there is nothing to compute"
    if platform == "tpu" and sizes.rows == 1:
        numbers = sizes.parents * sizes.products
        fits = numbers <= _LARGEST_VECTOR_KERNEL
        return None if fits else f"J·X·Y = {numbers} is more than {_LARGEST_VECTOR_KERNEL}"
    if sizes.products > LARGEST_KERNEL[platform]:
        return f"A·X·Y = {sizes.products} is more than {LARGEST_KERNEL[platform]}"
    if platform == "cuda" and sizes.parents > _MOST_PARENTS:
        return f"J = {sizes.parents} is more than {_MOST_PARENTS}"
    largest = sizes.positions * sizes.children * max(sizes.parents, sizes.rows * sizes.columns)
    if platform == "cuda" and largest > _MOST_ELEMENTS:
        return "an array has more than 2³¹ elements"
    return None


def _why_no_triton(capability: tuple[int, ...] | None) -> str | None:
    """Returns the reason why a GPU of this compute capability has no Triton kernels, or None."""
    if capability is None:
        return "the compute capability of the GPU is not known"
    if capability < _LEAST_CAPABILITY:
        least, own = (".".join(map(str, each)) for each in (_LEAST_CAPABILITY, capability))
        return f"the GPU's compute capability {own} is below Triton's least, {least}"
    if importlib.util.find_spec("jax.experimental.pallas.triton") is None:
        return "this JAX has no Pallas through Triton"
    return None


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


class _Settings(NamedTuple):
    """What all programs are lowered under."""

    enabled: bool
    interpreted: str | None = None  # a platform
    mode: Any = False  # of its interpreter


_settings = _Settings(
    os.environ.get("CAPSJAX_KERNELS", "on").lower() not in ("off", "0", "false", "no")
)


@contextlib.contextmanager
def _under(settings: _Settings) -> Iterator[None]:
    global _settings
    before, _settings = _settings, settings
    eager_program.cache_clear()
    try:
        yield
    finally:
        _settings = before
        eager_program.cache_clear()


def without_kernels() -> contextlib.AbstractContextManager[None]:
    """Programs lowered inside the block have no kernels; those already compiled keep theirs."""
    return _under(_settings._replace(enabled=False))


def interpreted(platform: str, mode: Any = True) -> contextlib.AbstractContextManager[None]:
    """Programs lowered inside the block have the kernels of `platform`, interpreted, anywhere.

    This is slow: it serves to find errors.

    Args:
      platform: "tpu" or "cuda".
      mode: what `pallas_call` takes as `interpret`, such as `pltpu.InterpretParams(…)`.

    Raises:
      ValueError: an unknown platform.
    """
    if platform not in ("tpu", "cuda"):
        raise ValueError(f'platform must be "tpu" or "cuda", got {platform!r}')
    return _under(_settings._replace(interpreted=platform, mode=mode))


def interpret_mode() -> Any:
    """Returns the argument `interpret` of `pallas_call`."""
    return _settings.mode if _settings.interpreted else False
