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
from rich.filesize import decimal

from _compile import compilers, dumps, hlo, targets
from _compile.dumps import Buffer, GpuKernel, TpuKernel
from _compile.targets import Chip, Target

TOLD = 5  # of the largest buffers and operations


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
    module: hlo.Module = field(repr=False)  # after all optimizations
    memory: Memory  # of one device
    buffers: tuple[Buffer, ...] = field(repr=False)  # all stored values, the largest first
    cpu_seconds: float  # from the function to the executable
    wall_seconds: float
    _bundles: Mapping[str, str] = field(repr=False)
    _ptx: Sequence[str] = field(repr=False)

    @property
    def bytes_moved(self) -> int:
        """What a step reads from and writes to a device's main memory."""
        return sum(cost.bytes for cost in self.costs)

    @property
    def cycles(self) -> int | None:
        """Cycles of a step, estimated, summed over its operations; None for GPUs and CPUs."""
        return self.cycles_of(in_step=True)

    @property
    def milliseconds(self) -> float | None:
        """Time of a step, estimated: `cycles` over the chip's clock, without waiting for others."""
        return None if self.cycles is None else self.cycles / self.target.chip.gigahertz / 1e6

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """All operations of a step, the most cycles first; by bytes where none are estimated."""
        costs, module = [], self.module
        for operation in module.operations:
            if operation.in_step:
                name, source = operation.instruction.name, module.source(operation.instruction)
                cycles = self._cycles_of(operation) if self._has_cycles else None
                costs.append(Cost(name, source, cycles, module.bytes_moved(operation)))
        return tuple(sorted(costs, key=lambda cost: (-(cost.cycles or 0), -cost.bytes)))

    @cached_property
    def tpu_kernels(self) -> dict[str, TpuKernel]:
        """Bundles and cycles of every custom kernel, by the name of its operation; once each."""
        kernels = self._custom_calls
        # The compiler writes out one of several that are the same.
        texts = {kernels[name]: text for name, text in self._bundles.items() if name in kernels}
        return {n: dumps.count_bundles(texts[what]) for n, what in kernels.items() if what in texts}

    @cached_property
    def _custom_calls(self) -> dict[str, str]:
        """What each custom kernel computes, by the name of its operation."""
        instructions = [operation.instruction for operation in self.module.operations]
        return {i.name: what for i in instructions if (what := self.module.kernel(i))}

    @property
    def _has_cycles(self) -> bool:
        """No kernel is written out if LIBTPU_INIT_ARGS is empty: then a sum would lack theirs."""
        written = self.tpu_kernels.keys() == self._custom_calls.keys()
        return self.target.platform == "tpu" and written

    @cached_property
    def gpu_kernels(self) -> tuple[GpuKernel, ...]:
        """Registers and spills of every kernel, XLA's own included."""
        return dumps.assemble(self._ptx)

    def stores(self, num_elements: int) -> list[Buffer]:
        """Returns the temporaries of at least `num_elements` elements, wherever they lie."""
        return [b for b in self.buffers if b.temporary and hlo.elements(b.shape) >= num_elements]

    def cycles_of(self, *, in_step: bool) -> int | None:
        """Cycles of a step, or of what runs once in a dispatch, such as an epoch's order."""
        if not self._has_cycles:
            return None
        chosen = (o for o in self.module.operations if o.in_step == in_step)
        return sum(map(self._cycles_of, chosen))

    def _cycles_of(self, operation: hlo.Operation) -> int:
        kernel = self.tpu_kernels.get(operation.instruction.name)
        return operation.times * (kernel.cycles if kernel else operation.instruction.cycles or 0)

    def to_json(self, images: int) -> dict[str, Any]:
        """Returns what is told of it; a step does so many images on all devices together."""
        worst = sorted(self.gpu_kernels, key=lambda kernel: (-kernel.spilled, -kernel.registers))
        kernels = {k.name: {"registers": k.registers, "spilled": k.spilled} for k in worst[:TOLD]}
        kernels |= {name: kernel._asdict() for name, kernel in self.tpu_kernels.items()}
        speed = 1e3 * images / self.milliseconds if self.milliseconds else None
        return {
            "compile_cpu_seconds": round(self.cpu_seconds, 1),
            "compile_seconds": round(self.wall_seconds, 1),
            "memory": self.memory._asdict() | {"total": self.memory.total},
            "memory_of_device": self.target.chip.memory,
            "largest_buffers": [
                {"name": b.instruction, "shape": b.shape, "bytes": b.bytes, "on_chip": b.on_chip}
                for b in self.buffers[:TOLD]
            ],
            "operations": len(self.module.operations),
            "bytes_moved": self.bytes_moved,
            "collectives": {kind: c._asdict() for kind, c in self.module.collectives.items()},
            "largest_operations": [cost._asdict() for cost in self.costs[:TOLD]],
            "kernels": kernels,
            "estimated": {
                "cycles": self.cycles,
                "cycles_per_dispatch": self.cycles_of(in_step=False),
                "milliseconds": self.milliseconds,
                "images": images,
                "images_per_second": speed,
            },
        }


def compile_for(name: str, function: Callable[..., Any], *shapes: Any, **options: Any) -> Compiled:
    """Compiles `function` for one device of the target called `name`.

    Only shapes and types of `shapes`, the arguments, count; `options` are those of `jax.jit`.
    """
    target = targets.find(name)
    on = SingleDeviceSharding(targets.devices(target)[0])
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on), shapes)
    return compile_lowered(target, lambda: jax.jit(function, **options).lower(*arguments))


def compile_lowered(target: Target, lower: Callable[[], jax.stages.Lowered]) -> Compiled:
    """Compiles what `lower` lowers for the devices of `target`.

    Raises DoesNotFit if a device has less memory, ValueError if the compiler fails.
    """
    on_tpu, on_gpu = target.platform == "tpu", target.platform == "gpu"
    if on_tpu:
        dumps.read_bundles(compilers.dumps())  # what else was compiled before
    with tempfile.TemporaryDirectory(prefix="capsjax-compile-") as name:
        wall, cpu = time.perf_counter(), _cpu_seconds()
        with targets.abstract_device(target):
            lowered = lower()
        # Kernels are dumped as PTX only on request (since JAX 0.11).
        options = {"xla_dump_to": name} | ({"xla_dump_emitter_re": "ptx"} if on_gpu else {})
        try:
            compiled = lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise _too_much(target.chip, *dumps.read_memory(Path(name))) from error
            said = " ".join(str(error).split())
            raise ValueError(f"the compiler failed for {target.name}: {said[:1000]}") from error
        wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
        sizes = compiled.memory_analysis()
        memory = Memory(
            sizes.argument_size_in_bytes,
            sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
            sizes.temp_size_in_bytes,
            sizes.generated_code_size_in_bytes,
        )
        _, buffers = dumps.read_memory(Path(name))
        bundles = dumps.read_bundles(compilers.dumps()) if on_tpu else {}
        ptx = dumps.read_ptx(Path(name)) if on_gpu else ()
    module = hlo.Module(compiled.as_text())
    if target.chip.memory and memory.total > target.chip.memory:
        raise _too_much(target.chip, memory.total, buffers)
    return Compiled(target, module, memory, buffers, cpu, wall, bundles, ptx)


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _too_much(chip: Chip, needed: int, stored: Sequence[Buffer]) -> DoesNotFit:
    largest = [b for b in stored if not b.on_chip][:5]
    names = (f"{b.instruction}, {b.shape.split('{')[0]}, {decimal(b.bytes)}" for b in largest)
    return DoesNotFit(
        f"the program takes {decimal(needed)} of a {chip.name}'s {decimal(chip.memory)}, "
        f"{decimal(needed - chip.memory)} too much; its largest buffers: {'; '.join(names)}"
    )
