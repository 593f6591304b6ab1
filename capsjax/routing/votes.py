"""Votes as a linear operator: what routing needs of v_ij, without holding v_ij.

I children vote for J parents with poses of D numbers. "..." stands for any batch axes, which all
arguments share. Reductions are done in, and return, at least float32.
"""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from capsjax.functional import at_least_float32, check_floating, type_of_sums
from capsjax.routing import kernels

Poses = Float[Array, "*batch J D"]
Coupling = Float[Array, "*batch I J"]
# An argument that broadcasts to the shape which its description names.
Broadcast = Float[Array | np.ndarray, "..."]
# What JAX puts in place of arrays: an axis of `in_axes`, None, a shape, a sharding.
Placeholder = int | jax.ShapeDtypeStruct | jax.sharding.PartitionSpec | jax.sharding.Sharding | None


@runtime_checkable
class Votes(Protocol):
    """The methods that a class needs to be routed.

    Optional methods, see LinearVotes: `attend`, and for EM `scatter`, `distance` and `moments`. EM
    computes `dense()` if `scatter` or `distance` is missing; otherwise only its shape is used.
    """

    def combine(self, coupling: Coupling) -> Poses:
        """Returns Σ_i c_ij v_ij."""

    def agreement(self, poses: Poses) -> Coupling:
        """Returns the scalar products <v_ij, p_j>."""

    def total(self) -> Poses:
        """Returns Σ_i v_ij."""

    def dense(self) -> Float[Array, "*batch I J D"]:
        """Returns all votes in one array."""


VotesLike = Votes | Float[Array | np.ndarray, "*batch I J D"]


def as_votes(votes: Any) -> Votes:
    """Returns `votes` itself if it is an operator, `DenseVotes(votes)` if it is an array."""
    if isinstance(votes, jax.Array | np.ndarray):
        return DenseVotes(votes)
    if isinstance(votes, Votes):
        return votes
    raise TypeError(
        f"votes must be an array [..., I, J, D] or have the methods combine, agreement, total and "
        f"dense, got {type(votes).__name__}; see capsjax.routing.Votes."
    )


def shape_of(votes: Votes) -> jax.ShapeDtypeStruct:
    """Returns the shape [..., I, J, D] and type of the votes. Nothing is computed."""
    shape = jax.eval_shape(lambda: votes.dense())
    if len(shape.shape) < 3 or 0 in shape.shape[-3:]:
        raise ValueError(
            f"votes must have the axes [..., I, J, D] (children, parents, pose size), none of "
            f"length zero; dense() has shape {shape.shape}."
        )
    return shape


def attend(votes: Votes, poses: Poses) -> tuple[Poses, Coupling]:
    """Returns Σ_i r_ij v_ij and r, where r_i· = softmax_j(<v_ij, p_j>).

    Uses the votes' own method `attend` if they have one (see LinearVotes): it may take one pass.
    """
    if hasattr(votes, "attend"):
        return votes.attend(poses)
    coupling = kernels.softmax(votes.agreement(poses))
    return votes.combine(coupling), coupling


class _Fields:
    """A frozen dataclass that is a pytree of its fields."""

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        return tuple(vars(self).values()), tuple(vars(self))

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], children: tuple[Any, ...]) -> Any:
        # Without the checks: JAX puts any object in an array's place.
        instance = object.__new__(cls)
        vars(instance).update(zip(names, children, strict=True))
        return instance


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, init=False)
class DenseVotes(_Fields):
    """Votes held as one array [..., I, J, D]."""

    votes: Float[Array, "*batch I J D"]

    def __init__(self, votes: Float[Array | np.ndarray, "*batch I J D"] | Placeholder):
        if not isinstance(votes, Placeholder):
            check_floating("votes", votes)
            if votes.ndim < 3:
                raise ValueError(
                    f"votes must have axes [..., I, J, D] (children, parents, pose size), "
                    f"got shape {votes.shape}."
                )
            votes = jnp.asarray(votes)
        vars(self).update(votes=votes)

    def combine(self, coupling: Coupling) -> Poses:
        """Returns Σ_i c_ij v_ij."""
        return einsum("...ij,...ijd->...jd", self._divided(coupling), self.votes)

    def agreement(self, poses: Poses) -> Coupling:
        """Returns the scalar products <v_ij, p_j>."""
        return einsum("...ijd,...jd->...ij", self.votes, poses)

    def total(self) -> Poses:
        """Returns Σ_i v_ij."""
        return jnp.sum(at_least_float32(self.votes), axis=-3)

    def dense(self) -> Float[Array, "*batch I J D"]:
        """Returns all votes in one array."""
        return self.votes

    def scatter(self, coupling: Coupling, means: Poses) -> Poses:
        """Returns Σ_i c_ij (v_ij − μ_j)², for each of the D numbers."""
        return einsum("...ij,...ijd->...jd", self._divided(coupling), self._squares(means))

    def distance(self, means: Poses, precision: Poses) -> Coupling:
        """Returns Σ_d λ_jd (v_ijd − μ_jd)² with precision λ."""
        return einsum("...ijd,...jd->...ij", self._squares(means), precision)

    def _divided(self, coupling: Coupling) -> Coupling:
        """Returns `coupling` sharded like the votes (explicit axes), for results that are too."""
        return placed_like(coupling, self.votes[..., 0])

    def _squares(self, means: Poses) -> Float[Array, "*batch I J D"]:
        return jnp.square(at_least_float32(self.votes) - means[..., None, :, :])


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, init=False)
class LinearVotes(_Fields):
    """Votes v_ij = P_i W_ij, recomputed from poses and kernel instead of held.

    How they are computed depends on the sizes and on the platform that a program is compiled for
    (capsjax/routing/kernels/forms.py has the table). Only `dense` stores all votes.

    A pose P_i is a matrix of A rows and X columns; the vote has A rows and Y columns and is
    flattened row by row into D = A·Y numbers. This covers all the published kinds:

      vector         A = 1
      matrix         A = X = Y = √D
      shared         a kernel with a leading axis of 1: all children use the same W_j
      convolutional  batch axes are positions, children the capsules of a k×k patch
    """

    poses: Float[Array, "*batch I A X"]
    kernel: Float[Array, "I_or_1 X J Y"]

    def __init__(
        self,
        poses: Float[Array | np.ndarray, "*batch I A X"] | Placeholder,
        kernel: Float[Array | np.ndarray, "I_or_1 X J Y"] | Placeholder,
    ):
        if not (isinstance(poses, Placeholder) or isinstance(kernel, Placeholder)):
            check_floating("poses", poses)
            check_floating("kernel", kernel)
            _check_shapes(poses.shape, kernel.shape)
            poses, kernel = jnp.asarray(poses), jnp.asarray(kernel)
        vars(self).update(poses=poses, kernel=kernel)

    def combine(self, coupling: Coupling) -> Poses:
        """Returns Σ_i c_ij v_ij."""
        if self.shared:
            sums = einsum("...ij,...iax->...jax", coupling, self.poses)
            return _flat(einsum("...jax,xjy->...jay", sums, self.kernel[0]))
        return _flat(kernels.combine(*_promote(coupling, self.poses, self.kernel)))

    def agreement(self, poses: Poses) -> Coupling:
        """Returns the scalar products <v_ij, p_j>."""
        rows = self._rows(poses)
        if self.shared:
            pulled = einsum("...jay,xjy->...jax", rows, self.kernel[0])
            return einsum("...iax,...jax->...ij", self.poses, pulled)
        return kernels.agreement(*_promote(self.poses, self.kernel, rows))

    def attend(self, poses: Poses) -> tuple[Poses, Coupling]:
        """Returns Σ_i r_ij v_ij and r, where r_i· = softmax_j(<v_ij, p_j>)."""
        if self.shared:
            coupling = kernels.softmax(self.agreement(poses))
            return self.combine(coupling), coupling
        operands = _promote(self.poses, self.kernel, self._rows(poses))
        sums, coupling = kernels.attend(*operands)
        return _flat(sums), coupling

    def total(self) -> Poses:
        """Returns Σ_i v_ij, one matrix product."""
        if self.shared:
            sums = jnp.sum(at_least_float32(self.poses), axis=-3)
            return _flat(einsum("...ax,xjy->...jay", sums, self.kernel[0]))
        return _flat(kernels.total(*_promote(self.poses, self.kernel)))

    def dense(self) -> Float[Array, "*batch I J D"]:
        """Returns all votes in one array."""
        with jax.numpy_dtype_promotion("standard"):
            return _flat(jnp.einsum("...iax,ixjy->...ijay", self.poses, self._own_kernel()))

    def scatter(self, coupling: Coupling, means: Poses) -> Poses:
        """Returns Σ_i c_ij (v_ij − μ_j)², for each of the D numbers."""
        operands = _promote(coupling, self.poses, self._own_kernel(), self._rows(means))
        return _flat(kernels.scatter(*operands))

    def moments(self, coupling: Coupling) -> tuple[Poses, Poses, Float[Array, "*batch J"]]:
        """Returns Σ_i c_ij v_ij, Σ_i c_ij (v_ij − μ_j)² about the mean μ_j, and Σ_i c_ij."""
        sums, squares, total = kernels.moments(*_promote(coupling, self.poses, self._own_kernel()))
        return _flat(sums), _flat(squares), total

    def distance(self, means: Poses, precision: Poses) -> Coupling:
        """Returns Σ_d λ_jd (v_ijd − μ_jd)² with precision λ."""
        return kernels.distance(
            *_promote(self.poses, self._own_kernel(), self._rows(means), self._rows(precision))
        )

    @property
    def shared(self) -> bool:
        """Whether all children use one kernel."""
        return self.kernel.shape[0] == 1

    def _own_kernel(self) -> Float[Array, "I X J Y"]:
        """Returns the kernel with an entry for each child."""
        return jnp.broadcast_to(self.kernel, (self.poses.shape[-3], *self.kernel.shape[1:]))

    def _rows(self, poses: Poses) -> Float[Array, "*batch J A Y"]:
        """Returns parent poses [..., J, D] as matrices [..., J, A, Y]."""
        return poses.reshape(*poses.shape[:-1], self.poses.shape[-2], self.kernel.shape[-1])


def for_every_example(x: Float[Array, "*#batch I J"], sums: Poses) -> Coupling:
    """Returns `x` with the batch axes and on the devices of `sums`, to be carried by a loop."""
    return placed_like(x, sums[..., None, :, 0])


def placed_like(x: Array | np.ndarray, other: Array | np.ndarray) -> Array:
    """Returns `x`, broadcast with `other`, on the devices of `other`.

    Under `jax.shard_map` and on meshes of explicit axes, an array's type says on which devices it
    is; a constant's says none, and would not match.
    """
    x = jnp.expand_dims(jnp.asarray(x), range(other.ndim - x.ndim))
    # With JAX 0.12 `zeros_like` has no devices either, unless there is a `jax.set_mesh`.
    placed = jnp.add(x, jnp.where(False, jax.lax.stop_gradient(other), 0).astype(x.dtype))
    # For its backward pass a loop keeps a copy of `placed` for each iteration, of `x` only one.
    # Meshes are compared by their axes: that of experiments/compile.py also names its GPU.
    kinds = {(str(t), t.sharding.mesh.axis_names) for t in map(jax.typeof, (x, placed))}
    return x if len(kinds) == 1 else placed


def einsum(subscripts: str, *operands: Array) -> Array:
    """Calls `jnp.einsum`; accumulates in and returns at least float32."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.einsum(subscripts, *operands, preferred_element_type=type_of_sums(*operands))


def _promote(*arrays: Array) -> list[Array]:
    """Converts all to the type in which they are summed."""
    return [array.astype(type_of_sums(*arrays)) for array in arrays]


def _flat(votes: Float[Array, "*batch A Y"]) -> Float[Array, "*batch D"]:
    return jax.lax.collapse(votes, votes.ndim - 2)


def _check_shapes(poses: tuple[Any, ...], kernel: tuple[Any, ...]) -> None:
    """Raises a ValueError unless poses [..., I, A, X] fit a kernel [I or 1, X, J, Y]."""
    enough_axes = len(poses) > 2 and len(kernel) == 4
    if enough_axes and kernel[0] in (poses[-3], 1) and kernel[1] == poses[-1]:
        return
    # Without the axis A, a batch of vectors reads as one example of matrices.
    vectors = len(poses) == 2 or poses[-2:] == kernel[:2]
    hint = "; vectors [..., I, X] become poses[..., None, :]" if vectors else ""
    raise ValueError(
        f"poses must be [..., I, A, X] (children, rows, columns) and kernel [I or 1, X, J, Y] "
        f"(children, columns, parents, columns of votes), got {poses} and {kernel}{hint}."
    )
