"""The one file that uses `jax.extend` and `jax.interpreters`: primitives and their rules.

`jax.custom_jvp`, `jax.custom_vjp` and `jax.custom_batching` cannot say what is needed here: an
operation that is linear in several arguments, differentiable any number of times in either mode,
batched without forming a gradient of weights per example, and lowered to another program on each
platform. A primitive can. `tests/routing/kernels/test_rules.py` tries each rule with this JAX.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

PLATFORMS = ("cpu", "tpu", "cuda")
_CHOICES: dict[Primitive, Callable[..., Any]] = {}  # of every primitive that `define` made

# What computes a result, and whether it is a kernel.
Choice = tuple[Callable[..., Any], bool]


class Target(NamedTuple):
    """What a program is being lowered for.

    Attributes:
      platform: one of PLATFORMS, or "default" for all others.
      divided: whether XLA divides the program over devices by itself. It cannot divide a kernel.
      exported: whether the program is made by `jax.export`, which keeps it in a portable form.
      capability: the least compute capability of its GPUs, such as (7, 5); None where it has none,
        or where they are not known.
    """

    platform: str
    divided: bool = False
    exported: bool = False
    capability: tuple[int, ...] | None = None


def define(
    name: str,
    *,
    abstract: Callable[..., Any],
    choose: Callable[..., Choice],
    multiple_results: bool = False,
) -> Primitive:
    """Defines a primitive.

    Args:
      name: what it is called in a jaxpr.
      abstract: from the types of the arguments, and the parameters, to the type of the result.
      choose: from a Target, the types of the arguments, and the parameters, to a function of the
        arguments that computes the result, and whether it is a kernel. Kernels run on one device,
        see types without the axes of a mesh, and are traced with 32-bit types.
      multiple_results: whether results come as a list.
    """
    primitive = Primitive(name)
    primitive.multiple_results = multiple_results
    primitive.def_abstract_eval(abstract)
    _CHOICES[primitive] = choose

    def rule_for(platform: str) -> Callable[..., Any]:
        def rule(ctx: Any, *args: Any, **params: Any) -> Any:
            module = ctx.module_context
            target = Target(
                platform,
                _is_divided(module.axis_context),
                bool(getattr(module.lowering_parameters, "for_export", False)),
                _capability(module.backend),
            )
            function, is_kernel = choose(target, ctx.avals_in, **params)
            if not is_kernel:
                return mlir.lower_fun(function, multiple_results)(ctx, *args)
            plain = [jax.core.ShapedArray(x.shape, x.dtype) for x in ctx.avals_in]
            # Mosaic counts in 32 bits, a loop traced with `jax_enable_x64` in 64.
            with jax.enable_x64(False):
                kernel = jaxpr_as_fun(jax.make_jaxpr(function)(*plain))
            with warnings.catch_warnings():
                # Users can do nothing about it, and `why_no_kernel` is ready for its removal.
                warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated")
                return mlir.lower_fun(kernel)(ctx.replace(avals_in=plain), *args)

        return rule

    for platform in PLATFORMS:
        mlir.register_lowering(primitive, rule_for(platform), platform=platform)
    mlir.register_lowering(primitive, rule_for("default"))

    def evaluate(*args: Any, **params: Any) -> Any:
        # Where jit is off, or runs again operation by operation in search of a NaN, the program
        # would call itself.
        with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
            return eager_program(primitive, **params)(*args)

    primitive.def_impl(evaluate)
    return primitive


def portable(
    primitive: Primitive, avals: Sequence[Any], params: dict[str, Any]
) -> Callable[..., Any] | None:
    """Returns what computes `primitive` on an unknown platform; None for JAX's own primitives."""
    if primitive not in _CHOICES:
        return None
    function, _ = _CHOICES[primitive](Target("default"), avals, **params)
    return function


@functools.cache
def eager_program(primitive: Primitive, **params: Any) -> Callable[..., Any]:
    """Returns what a call outside `jax.jit` runs: kept, so that only the first one compiles."""
    return jax.jit(functools.partial(primitive.bind, **params))


def _capability(backend: Any) -> tuple[int, ...] | None:
    """Returns the least compute capability of the devices that a program is lowered for.

    These may be described and not attached; of another machine's nothing may be known.
    """
    devices = () if backend is None else backend.devices()
    capabilities = [getattr(device, "compute_capability", None) for device in devices]
    # An AMD GPU says "gfx90a".
    numbers = [c.split(".") for c in capabilities if c and c.replace(".", "").isdigit()]
    return min((tuple(map(int, c)) for c in numbers), default=None)


def _is_divided(context: Any) -> bool:
    """Tells whether a program under lowering is for several devices and not manual."""
    mesh = getattr(context, "mesh", None)
    if mesh is not None:
        manual = frozenset(context.manual_axes) | frozenset(getattr(mesh, "manual_axes", ()))
        return manual != frozenset(mesh.axis_names) and mesh.size > 1
    return getattr(context, "num_devices", 1) not in (None, 1)


def set_rules(
    primitive: Primitive,
    *,
    jvp: Callable[..., Any],
    batch: Callable[..., Any],
    transpose: Callable[..., Any] | None = None,
) -> None:
    """Gives a primitive its rules of differentiation and vectorisation."""
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    if transpose is not None:
        ad.primitive_transposes[primitive] = transpose


def nonzero(letters: Iterable[str], tangents: Sequence[Any]) -> dict[str, Any]:
    """Returns the tangents or cotangents that are not zero by construction, by letter."""
    pairs = zip(letters, tangents, strict=True)
    return {letter: tangent for letter, tangent in pairs if not is_zero(tangent)}


def is_zero(tangent: Any) -> bool:
    """Tells whether a tangent or cotangent is zero by construction."""
    return type(tangent) is ad.Zero


def instantiate(tangent: Any) -> Any:
    """Returns the tangent as an array."""
    return ad.instantiate_zeros(tangent)


def is_unknown(primal: Any) -> bool:
    """Tells whether a transpose rule is asked for the cotangent of this argument."""
    return ad.is_undefined_primal(primal)


def alike(arrays: Sequence[Any]) -> list[Any]:
    """Returns the arrays, typed as different on all the devices on which any of them is.

    Under `jax.shard_map` weights are the same on all devices and poses are not, which is a part of
    their types. The operands of a primitive must agree.
    """
    varying = [_varying(x) for x in arrays]
    missing = [frozenset().union(*varying) - axes for axes in varying]
    return [
        lax.pcast(x, tuple(axes), to="varying") if axes else x
        for x, axes in zip(arrays, missing, strict=True)
    ]


def _varying(x: Any) -> frozenset[str]:
    """Returns the axes of `jax.shard_map` over which `x` differs."""
    return jax.typeof(x).manual_axis_type.varying


def zeros(like: jax.ShapeDtypeStruct, sources: Any) -> Any:
    """Zeros of the type of `like`, which is computed from the arrays in the tree `sources`.

    The type cannot be asked for by name: where `jax.shard_map` has some axes of a mesh and not
    the others, a program is lowered under another mesh than it was traced under.
    """
    plain = jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=like.sharding)
    typed = [lax.full_like(x, 0, like.dtype, shape=()) for x in jax.tree.leaves(sources)]
    return sum(typed, jax.numpy.zeros_like(plain))


def kernel_result(shape: tuple[int, ...], like: Any) -> jax.ShapeDtypeStruct:
    """Describes a result for `pallas_call`: its shape, and the type of the operand `like`."""
    manual = jax.typeof(like).manual_axis_type  # asked for under `jax.shard_map`
    return jax.ShapeDtypeStruct(shape, like.dtype, manual_axis_type=manual)


def mesh_sharding(like: Any, *spec: Any) -> Any:
    """Returns the sharding over the axes of `like`'s mesh that `spec` names for each axis.

    Without a `spec`, which a sum over divided axes has, the array is replicated. None where types
    do not say how arrays are divided.
    """
    mesh = jax.typeof(like).sharding.mesh
    if mesh.empty or not mesh.explicit_axes:
        return None
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


def reshard(x: Any, others: Sequence[Any], *spec: Any) -> Any:
    """Divides the first axes of `x` by `spec` over the mesh of `others`, if they are not.

    Its own mesh may be empty: a constant has none.
    """
    if _spec(x)[: len(spec)] == spec:
        return x
    shardings = [mesh_sharding(other, *spec) for other in others]
    return jax.sharding.reshard(x, next(sharding for sharding in shardings if sharding is not None))


def parts(x: Any) -> int:
    """Counts the parts into which the first axis of `x` is divided over devices, by its type.

    1 if the axis is not divided, or if types do not say.
    """
    names = _spec(x)[0]
    each = (names,) if isinstance(names, str) else names or ()
    return math.prod(jax.typeof(x).sharding.mesh.shape[name] for name in each)


def split(x: Any, axis: int, parts: int) -> Any:
    """Splits `axis` [N] of `x` into [parts, N / parts]; if N is divided over devices, by device."""
    spec = _spec(x)
    shape = (*x.shape[:axis], parts, x.shape[axis] // parts, *x.shape[axis + 1 :])
    sharding = mesh_sharding(x, *spec[: axis + 1], None, *spec[axis + 1 :])
    return lax.reshape(x, shape, out_sharding=sharding)


def join(x: Any, axis: int) -> Any:
    """Inverts `split`: joins `axis` and the next one."""
    spec = _spec(x)
    shape = (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
    sharding = mesh_sharding(x, *spec[: axis + 1], *spec[axis + 2 :])
    return lax.reshape(x, shape, out_sharding=sharding)


def reshape_after(x: Any, axis: int, shape: tuple[Any, ...]) -> Any:
    """Returns `x` with other axes from `axis` on, none of which is divided over devices."""
    sharding = mesh_sharding(x, *_spec(x)[:axis])
    return lax.reshape(x, (*x.shape[:axis], *shape), out_sharding=sharding)


def _spec(x: Any) -> tuple[Any, ...]:
    """Returns, for each axis of `x`, the axes of the mesh that divide it by its type, or None."""
    spec = tuple(jax.typeof(x).sharding.spec)
    return spec + (None,) * (x.ndim - len(spec))


def typed(like: Any, shape: tuple[Any, ...], spec: Sequence[Any]) -> Any:
    """Returns the type `like` with another shape, divided over the axes of a mesh by `spec`."""
    sharding = like.sharding.update(spec=jax.sharding.PartitionSpec(*spec))
    return like.update(shape=shape, sharding=sharding)
