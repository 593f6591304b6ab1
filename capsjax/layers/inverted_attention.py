"""Inverted dot-product attention with learned parameters, and a stack of layers routed by it."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from capsjax.functional import identity
from capsjax.layers.capsules import ConvCapsules, DenseCapsules
from capsjax.routing import (
    Routed,
    Votes,
    concurrent,
    em_routing,
    fixed_point,
    in_blocks,
    inverted_attention_routing,
    sequential,
)
from capsjax.routing.kernels.layout import row_major
from capsjax.routing.votes import as_votes, shape_of

Schedule = Literal["concurrent", "sequential", "fixed_point"]

_TOLERANCE = 1e-4  # of fixed points, relative; a narrow type's own precision where that is coarser
_EPSILON = 1e-5  # of LayerNorm in the released code's framework
_layer_norm = partial(nnx.LayerNorm, epsilon=_EPSILON)


def inverted_attention_init(
    key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32
) -> Array:
    """Draws from a normal of standard deviation √(J / (X·I)), for kernels W [I, X, J, Y].

    Tsai et al. 2020: X = √D for matrix poses and D for vectors; I counts all capsules of a window.
    """
    children, columns, parents, _ = shape
    std = math.sqrt(parents / (columns * children))
    return jax.nn.initializers.normal(std)(key, shape, dtype)


class InvertedAttention(nnx.Module):
    """One iteration of `inverted_attention_routing`, with its learned LayerNorm.

    For the argument `routing` of the capsule layers. Called with the poses of the previous
    iteration or None. All capsules and positions share the LayerNorm. `layer_norm=False` is
    ablation A of Tsai et al. 2020; `scale` is that of `inverted_attention_routing`.
    """

    def __init__(
        self, pose_size: int, *, layer_norm: bool = True, scale: float | None = None, rngs: nnx.Rngs
    ):
        self.norm = _layer_norm(pose_size, rngs=rngs) if layer_norm else identity
        self.scale = scale

    def __call__(
        self, votes: Votes | Array, poses: Float[Array, "*batch J D"] | None = None
    ) -> Routed:
        """Returns poses [..., J, D] and couplings [..., I, J]."""
        return inverted_attention_routing(votes, poses, scale=self.scale, normalize=self.norm)


class ActivatedInvertedAttention(nnx.Module):
    """One iteration with activations in the capsules (ablation C of Tsai et al. 2020).

    The paper says only that activations are as in EM routing. Here r is as in
    `inverted_attention_routing`, and the rest is one M-step of EM with it: the children's
    activations weigh their votes, p_j is the LayerNorm of the mean, and a_j = sigmoid(λ(β_a −
    cost_j)). A cost sums over the children and D numbers of each; λ = J / (I·D) keeps it of the
    size of a mean. (With EM's 0.01 the class capsules of the paper's network begin at
    a = 1 to the last bit, where nothing is learned.)
    """

    def __init__(
        self, num_parents: int, pose_size: int, *, scale: float | None = None, rngs: nnx.Rngs
    ):
        self.scale = scale
        self.norm = _layer_norm(pose_size, rngs=rngs)
        self.beta_use = nnx.Param(jnp.zeros(num_parents, jnp.float32))
        self.beta_activate = nnx.Param(jnp.zeros(num_parents, jnp.float32))

    def __call__(
        self,
        votes: Votes | Array,
        poses: Float[Array, "*batch J D"] | None,
        activations: Float[Array, "*batch I"],
    ) -> Routed:
        """Returns poses [..., J, D], couplings [..., I, J] and activations [..., J]."""
        votes = as_votes(votes)
        *_, children, parents, pose_size = shape_of(votes).shape
        coupling = None  # 1 / J for all
        if poses is not None:
            coupling = inverted_attention_routing(
                votes, poses, scale=self.scale, normalize=identity
            ).coupling
        routed = em_routing(
            votes,
            activations,
            self.beta_use[...],
            self.beta_activate[...],
            num_iterations=1,
            coupling=coupling,
            inverse_temperature=parents / (children * pose_size),
        )
        return routed._replace(poses=self.norm(routed.poses).astype(routed.poses.dtype))


class InvertedAttentionStack(nnx.Module):
    """Capsule layers that are routed together (Tsai et al. 2020, procedure 2).

    Args:
      layers: by name, from the bottom up: `ConvCapsules`, then `DenseCapsules` (on the flattened
        grid). Their routing is `InvertedAttention` or `ActivatedInvertedAttention`.
      num_iterations: iterations of each layer, at least 1.
      schedule: "concurrent": after a first pass bottom-up all layers at once; "sequential": layer
        by layer (ablation B); "fixed_point": layer by layer until poses change by less than one
        part in 10⁴, or 100 times; `num_iterations` is not used. (Such a state is a fixed point
        of the concurrent iteration too. There can be several.)
      block_size: examples at a time, to bound memory; None for all at once.
    """

    def __init__(
        self,
        layers: Mapping[str, DenseCapsules],
        *,
        num_iterations: int = 2,
        schedule: Schedule = "concurrent",
        block_size: int | None = None,
    ):
        if schedule not in get_args(Schedule):
            raise ValueError(f"schedule must be one of {get_args(Schedule)}, got {schedule!r}")
        if any(layer.bias is not None for layer in layers.values()):
            raise ValueError("layers of a stack have no biases: build them with use_bias=False")
        plain = all(isinstance(layer.routing, InvertedAttention) for layer in layers.values())
        if schedule == "fixed_point" and not plain:
            raise ValueError("fixed_point is for capsules without activations: choose concurrent")
        self.names, self.layers = tuple(layers), nnx.List(layers.values())
        self.num_iterations, self.schedule = num_iterations, schedule
        self.block_size = block_size

    def __call__(
        self,
        poses: Float[Array, "n H W C D"],
        activations: Float[Array, "n H W C"] | None = None,
        *,
        capture: bool = False,
    ) -> dict[str, Routed]:
        """Routes from the primary capsules to the top; returns each layer's result by its name.

        `activations` are for layers that have them. Without `capture`, couplings are None, and
        nothing of their size outlives an iteration.
        """

        def run(primary: Routed) -> list[Routed]:
            if self.schedule == "fixed_point":
                return self._converge(primary, capture)
            schedule = concurrent if self.schedule == "concurrent" else sequential
            updates = [partial(self._update, layer, capture) for layer in self.layers]
            return schedule(updates, primary, num_iterations=self.num_iterations)

        primary = Routed(poses, None, activations)  # type: ignore[arg-type]
        states = in_blocks(run, primary, self.block_size)
        return dict(zip(self.names, states, strict=True))

    def _update(
        self, layer: DenseCapsules, capture: bool, below: Routed, previous: Routed | None
    ) -> Routed:
        votes, *weights = self._children(layer, below)
        poses = None if previous is None else previous.poses
        return _carried(layer.routing(votes, poses, *weights), capture)

    def _converge(self, below: Routed, capture: bool) -> list[Routed]:
        tolerance = max(_TOLERANCE, float(jnp.finfo(below.poses.dtype).eps))
        states = []
        for layer in self.layers:
            below = fixed_point(
                inverted_attention_routing,
                self._children(layer, below)[0],
                scale=layer.routing.scale,  # type: ignore[attr-defined]
                normalize=layer.routing.norm,  # type: ignore[attr-defined]
                tolerance=tolerance,
                max_iterations=100,
            ).routed
            states.append(_carried(below, capture))
        return states

    def _children(self, layer: DenseCapsules, below: Routed) -> tuple[Any, ...]:
        """Returns the votes for `layer`, and the activations of the capsules below if any."""
        grid = isinstance(layer, ConvCapsules)
        votes: Votes = layer.votes(below.poses if grid else lax.collapse(below.poses, 1, -1))
        if below.activations is None:
            return (votes,)
        if isinstance(layer, ConvCapsules):
            return votes, layer.child_activations(below.activations)
        return votes, lax.collapse(below.activations, 1)


class GridPoseNorm(nnx.LayerNorm):
    """A LayerNorm of the poses of a whole grid [n, H, W, C, D].

    On a TPU, a LayerNorm over D = 16 alone would fill 16 of a register's 128 lanes. There the C·D
    numbers of a position stay together; sums over a pose are products with a matrix of 0 and 1.
    """

    def __init__(self, pose_size: int, *, rngs: nnx.Rngs):
        super().__init__(pose_size, epsilon=_EPSILON, rngs=rngs)

    def __call__(self, x: Float[Array, "n H W C D"], **_: Any) -> Float[Array, "n H W C D"]:
        return lax.platform_dependent(x, tpu=self._by_products, default=super().__call__)

    def _by_products(self, x: Array) -> Array:
        *grid, channels, size = x.shape
        member = jnp.repeat(jnp.eye(channels, dtype=jnp.float32), size, axis=0)  # [C·D, C]
        product = partial(jnp.matmul, precision="highest")

        def mean(flat: Array) -> Array:
            return product(product(flat, member) / size, member.T)

        flat = row_major(x.reshape(*grid, channels * size).astype(jnp.float32))
        centred = flat - mean(flat)
        normed = centred * lax.rsqrt(mean(jnp.square(centred)) + self.epsilon)
        scale, bias = (jnp.tile(jnp.asarray(v), channels) for v in (self.scale, self.bias))
        normed = row_major(normed * scale + bias)
        return normed.reshape(x.shape).astype(jnp.result_type(x, scale))


def _carried(routed: Routed, capture: bool) -> Routed:
    return routed if capture else routed._replace(coupling=None)  # type: ignore[arg-type]
