"""Functions compiled for a target, and what came out."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import SingleDeviceSharding

from _compile import buffers, bundles, compilers, hlo, ptx, targets
from _compile.buffers import Buffer
from _compile.targets import Chip, Target


class DoesNotFit(ValueError):
    """The program needs more memory than a device has."""


class Memory(NamedTuple):
    """Bytes that a program takes in a device's main memory."""

    arguments: int
    results: int  # that do not take the place of an argument
    temporary: int  # needed while it runs
    code: int  # the program itself (TPUs)

    @property
    def total(self) -> int:
        return sum(self)


class Cost(NamedTuple):
    """An operation and what it takes in a step."""

    name: str
    source: str  # the line that it comes from
    cycles: int | None  # the compiler's estimate, or the kernel's bundles; TPUs only
    bytes: int  # read from and written to main memory


@dataclass(frozen=True)
class Compiled:
    """A program for a target."""

    target: Target
    text: str = field(repr=False)  # the module after all optimizations
    memory: Memory  # of one device
    buffers: tuple[Buffer, ...] = field(repr=False)  # all stored values, the largest first
    cpu_seconds: float  # from the function to the executable
    wall_seconds: float
    _bundles: Mapping[str, str] = field(repr=False)
    _ptx: Sequence[str] = field(repr=False)

    @cached_property
    def module(self) -> hlo.Module:
        """`text`, read."""
        return hlo.Module(self.text)

    @property
    def bytes_moved(self) -> int:
        """What a step's operations read from and write to a device's main memory."""
        return sum(cost.bytes for cost in self.costs)

    @property
    def cycles(self) -> int | None:
        """Cycles of a step, estimated, summed over its operations; None for GPUs and CPUs."""
        return self.cycles_of(in_step=True)

    @property
    def milliseconds(self) -> float | None:
        """Time of a step, estimated: `cycles` over the chip's clock, without waiting for others."""
        if self.cycles is None or not self.target.chip.gigahertz:
            return None
        return self.cycles / self.target.chip.gigahertz / 1e6

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """All operations of a step, the most cycles first; by bytes where none are estimated."""
        costs = [
            Cost(
                operation.instruction.name,
                self.module.source(operation.instruction),
                self._cycles_of(operation),
                self.module.bytes_moved(operation),
            )
            for operation in self.module.operations
            if operation.in_step
        ]
        return tuple(sorted(costs, key=lambda cost: (-(cost.cycles or 0), -cost.bytes)))

    @cached_property
    def tpu_kernels(self) -> dict[str, bundles.Kernel]:
        """Bundles and cycles of every custom kernel, by the name of its operation; once each."""
        if self.target.platform != "tpu":
            return {}
        kernels = {
            o.instruction.name: self.module.kernel(o.instruction) for o in self.module.operations
        }
        # The compiler writes out one of several that are the same.
        texts = {kernels[name]: text for name, text in self._bundles.items() if kernels.get(name)}
        missing = [name for name, what in kernels.items() if what and what not in texts]
        if missing:
            raise RuntimeError(f"the compiler wrote no instructions of {', '.join(missing)}")
        return {name: bundles.count(texts[what]) for name, what in kernels.items() if what}

    @cached_property
    def gpu_kernels(self) -> tuple[ptx.Kernel, ...]:
        """Registers and spills of every kernel, XLA's own included."""
        return ptx.assemble(self._ptx)

    def stores(self, num_elements: int) -> list[Buffer]:
        """Returns the temporaries of at least `num_elements` elements, wherever they lie."""
        return [b for b in self.buffers if b.temporary and b.elements >= num_elements]

    def check_fits(self) -> None:
        """Raises DoesNotFit, which names the largest buffers, if a device has less memory."""
        limit = self.target.chip.memory
        if limit and self.memory.total > limit:
            raise DoesNotFit(_too_much(self.target.chip, self.memory.total, self.buffers))

    def cycles_of(self, *, in_step: bool) -> int | None:
        """Cycles of a step, or of what runs once in a dispatch, such as an epoch's order."""
        if self.target.platform != "tpu":
            return None
        chosen = (o for o in self.module.operations if o.in_step == in_step)
        return sum(self._cycles_of(operation) or 0 for operation in chosen)

    def _cycles_of(self, operation: hlo.Operation) -> int | None:
        if self.target.platform != "tpu":
            return None
        kernel = self.tpu_kernels.get(operation.instruction.name)
        return operation.times * (kernel.cycles if kernel else operation.instruction.cycles or 0)


def compile_for(
    target: str | Target, function: Callable[..., Any], *shapes: Any, **options: Any
) -> Compiled:
    """Compiles `function` for one device of `target`, which may be a name for `targets.find`.

    Args:
      target: such as "v5e:2x2" or "h100".
      function: of arrays; may be of `jax.jit`.
      shapes: its arguments, `jax.ShapeDtypeStruct`s or arrays; only their shapes count.
      options: of `jax.jit`, such as `donate_argnums`.
    """
    if isinstance(target, str):
        target = targets.find(target)
    on = SingleDeviceSharding(targets.devices(target)[0])
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on), shapes)
    return compile_lowered(target, lambda: jax.jit(function, **options).lower(*arguments))


def compile_lowered(target: Target, lower: Callable[[], jax.stages.Lowered]) -> Compiled:
    """Compiles what `lower` lowers for the devices of `target`; may raise `DoesNotFit`."""
    if target.platform == "tpu":
        bundles.read(compilers.dumps())  # what else was compiled before
    with tempfile.TemporaryDirectory(prefix="capsjax-compile-") as name:
        dump = Path(name)
        wall, cpu = time.perf_counter(), _cpu_seconds()
        with targets.abstract_device(target):
            lowered = lower()
        try:
            # Kernels are dumped as PTX only on request (since JAX 0.11).
            kernels = {"xla_dump_emitter_re": "ptx"} if target.platform == "gpu" else {}
            compiled = lowered.compile(compiler_options={"xla_dump_to": name, **kernels})
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise DoesNotFit(_too_much(target.chip, *buffers.read(dump))) from error
            said = " ".join(str(error).split())
            raise ValueError(f"the compiler failed for {target.name}: {said[:1000]}") from error
        wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
        sizes = compiled.memory_analysis()
        result = Compiled(
            target,
            compiled.as_text(),
            Memory(
                sizes.argument_size_in_bytes,
                sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
                sizes.temp_size_in_bytes,
                sizes.generated_code_size_in_bytes,
            ),
            buffers.read(dump).buffers,
            cpu,
            wall,
            bundles.read(compilers.dumps()) if target.platform == "tpu" else {},
            ptx.read(dump) if target.platform == "gpu" else (),
        )
    result.check_fits()
    return result


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _too_much(chip: Chip, needed: int, stored: Sequence[Buffer]) -> str:
    largest = [b for b in stored if not b.on_chip][:5]
    names = (f"{b.instruction}, {b.shape.split('{')[0]}, {_gb(b.bytes)}" for b in largest)
    return (
        f"the program takes {_gb(needed)} of a {chip.name}'s {_gb(chip.memory)}, "
        f"{_gb(needed - chip.memory)} too much; its largest buffers: {'; '.join(names)}"
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
