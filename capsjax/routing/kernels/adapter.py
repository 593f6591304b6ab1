"""The one file that uses `jax.extend` and `jax.interpreters`: primitives and their rules.

`derivatives` says why they are primitives; `tests/routing/kernels/test_rules.py` tries each rule
with this JAX.
"""

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

PLATFORMS = ("cpu", "tpu", "cuda")

# What computes a result, and whether it is a kernel.
Choice = tuple[Callable[..., Any], bool]


class Target(NamedTuple):
    """What a program is being lowered for."""

    platform: str  # one of PLATFORMS, or "default" for all others
    divided: bool = False  # XLA divides it over devices by itself, and cannot divide a kernel
    exported: bool = False  # by `jax.export`, which keeps it in a portable form
    capability: tuple[int, ...] | None = None  # the least of its GPUs, as (7, 5), if known


def define(
    name: str,
    *,
    abstract: Callable[..., Any],
    choose: Callable[..., Choice],
    own_axes: Callable[..., Sequence[int]] | None = None,
    multiple_results: bool = False,
) -> Primitive:
    """Defines a primitive.

    Args:
      name: what it is called in a jaxpr.
      abstract: from the types of the arguments, and the parameters, to the type of the result.
      choose: from a Target, the types of the arguments, and the parameters, to a function of the
        arguments that computes the result, and whether it is a kernel. Kernels run on one device,
        see types without the axes of a mesh, and are traced with 32-bit types.
      own_axes: from the parameters to the trailing axes of each argument that are not batch axes.
        None: there are none. On a mesh of explicit axes see `on_each_device`.
      multiple_results: whether results come as a list.
    """
    primitive = Primitive(name)
    primitive.multiple_results = multiple_results
    primitive.def_abstract_eval(abstract)

    def rule_for(platform: str) -> Callable[..., Any]:
        def rule(ctx: Any, *args: Any, **params: Any) -> Any:
            if any(aval.sharding.mesh.explicit_axes for aval in ctx.avals_in):
                specs = [aval.sharding.spec for aval in ctx.avals_out]
                whole = partial(
                    on_each_device,
                    partial(primitive.bind, **params),
                    own_axes=own_axes(**params) if own_axes else [0] * len(args),
                    out_specs=specs if multiple_results else specs[0],
                )
                return mlir.lower_fun(lambda *xs: whole(xs), multiple_results)(ctx, *args)
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
                # Users can do nothing about it, and forms.py is ready for its removal.
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


@functools.cache
def eager_program(primitive: Primitive, **params: Any) -> Callable[..., Any]:
    """Returns what a call outside `jax.jit` runs: kept, so that only the first one compiles."""
    return jax.jit(partial(primitive.bind, **params))


def _capability(backend: Any) -> tuple[int, ...] | None:
    """Returns the least compute capability, where known, of the devices that are compiled for."""
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


# An array in place of a tangent; whether a transpose rule is asked for an argument's cotangent.
instantiate, is_unknown = ad.instantiate_zeros, ad.is_undefined_primal


def alike(arrays: Sequence[Any]) -> list[Any]:
    """Returns the arrays, each typed as varying over all mesh axes over which any of them varies.

    Under `jax.shard_map` types say that weights are the same on all devices and that poses are not.
    The operands of a primitive must agree in this.
    """
    varying = [jax.typeof(x).manual_axis_type.varying for x in arrays]
    missing = [frozenset().union(*varying) - axes for axes in varying]
    return [
        lax.pcast(x, tuple(axes), to="varying") if axes else x
        for x, axes in zip(arrays, missing, strict=True)
    ]


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


def on_each_device(
    function: Callable[..., Any], arrays: Sequence[Any], *, own_axes: Sequence[int], out_specs: Any
) -> Any:
    """Computes `function(*arrays)` on a mesh of explicit axes, by parts of the batch.

    Where batch axes alone are divided, this is a `jax.shard_map` over the whole mesh, in which
    there can be kernels. Where other axes are, XLA divides the computation.

    Args:
      function: of arrays, such as a primitive with its parameters.
      arrays: batch axes first, divided in some of them.
      own_axes: how many axes of each array come after its batch axes.
      out_specs: of all results, or of each in a list. One without batch axes is a sum over them.
    """
    types = [jax.typeof(x) for x in arrays]
    mesh = next(t.sharding.mesh for t in types if t.sharding.mesh.explicit_axes)
    batch = batch_spec(types, own_axes)
    names = _names(batch)
    in_specs = tuple(
        PartitionSpec(*batch[: t.ndim - own]) for t, own in zip(types, own_axes, strict=True)
    )

    def part(*xs: Any) -> Any:
        def total(spec: Any, results: Any) -> Any:
            over = tuple(names - _names(spec))
            return lax.psum(results, over) if over else results

        return jax.tree.map(total, out_specs, function(*alike(xs)))

    with jax.sharding.use_abstract_mesh(mesh):
        # Weights that are divided over axes of the batch too are gathered.
        if any(_names(_spec(t)) - names for t in types):
            return jax.sharding.auto_axes(function, out_sharding=out_specs)(*arrays)
        mapped = jax.shard_map(
            part,
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            axis_names=set(mesh.explicit_axes),
        )
        return mapped(*map(jax.sharding.reshard, arrays, in_specs))


def batch_spec(types: Sequence[Any], own_axes: Sequence[int]) -> list[Any]:
    """Returns the axes of a mesh that divide each batch axis in one of the arrays, or None."""
    specs = [_spec(t)[: t.ndim - own] for t, own in zip(types, own_axes, strict=True)]
    return [next(filter(None, axes), None) for axes in itertools.zip_longest(*specs)]


def with_sharding(x: Any, aval: Any) -> Any:
    """Divides `x` over the axes of a mesh as `aval` is divided."""
    same = aval.sharding.mesh.empty or jax.typeof(x).sharding == aval.sharding
    return x if same else jax.sharding.reshard(x, aval.sharding)


def parts(x: Any) -> int:
    """Counts the parts into which the first axis of `x` is divided over devices, by its type.

    1 if the axis is not divided, or if types do not say.
    """
    t = jax.typeof(x)
    return math.prod(t.sharding.mesh.shape[name] for name in _names(_spec(t)[:1]))


def _spec(aval: Any) -> tuple[Any, ...]:
    """Returns, for each axis of an array, the axes of the mesh that divide it, or None."""
    spec = tuple(aval.sharding.spec)
    return spec + (None,) * (aval.ndim - len(spec))


def _names(spec: Iterable[Any]) -> set[str]:
    """Returns the axes of a mesh in a spec."""
    return {name for axes in spec if axes for name in ((axes,) if isinstance(axes, str) else axes)}


def typed(avals: Sequence[Any], shape: tuple[Any, ...], spec: Sequence[Any]) -> Any:
    """Returns the type of `avals` with another shape, divided over their mesh by `spec`.

    A constant's mesh may be empty.
    """
    shardings = [aval.sharding for aval in avals]
    sharding = next((s for s in shardings if not s.mesh.empty), shardings[0])
    return avals[0].update(shape=shape, sharding=sharding.update(spec=PartitionSpec(*spec)))
