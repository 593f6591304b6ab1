"""Kernels of capsule transforms: the W of v_ij = P_i W_ij, for every kind of pose."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

# How a pose of D numbers enters the product with its kernel: as one row, or as a √D×√D matrix.
Form = Literal["vector", "matrix"]


def kernel_shape(
    num_children: int, in_pose: int, num_parents: int, out_pose: int, form: Form
) -> tuple[int, int, int, int]:
    """Returns W's shape [I, X, J, Y]: X, Y = D_in, D_out for vectors, X = Y = √D for matrices."""
    if form == "vector":
        return num_children, in_pose, num_parents, out_pose
    if form != "matrix":
        raise ValueError(f'form must be "vector" or "matrix", got {form!r}')
    side = math.isqrt(in_pose)
    if in_pose != out_pose or side * side != in_pose:
        raise ValueError(
            "in_pose and out_pose of matrix poses must be equal and a square, got "
            f"{in_pose} and {out_pose}: the nearest are {side**2} and {(side + 1) ** 2}"
        )
    return num_children, side, num_parents, side


def unit_sums(num_children: int) -> nnx.Initializer:
    """Returns an initializer, the layers' default: J / √(I·Y) times a normal truncated at ±2.

    With uniform couplings and children of length 1 the sums Σ_i c_ij v_ij are then a little shorter
    than 1. If they start much shorter, squash, which is quadratic near 0, lets hardly any gradient
    through, and stacked layers do not learn. (I is an argument: a shared kernel does not have it.)
    """

    def init(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
        _, _, parents, columns = shape
        std = parents / math.sqrt(num_children * columns)
        return jax.nn.initializers.truncated_normal(std)(key, shape, dtype)

    return init


def unit_votes(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
    """Draws from a normal of standard deviation 1 / √X: for procedures that take means of votes."""
    return jax.nn.initializers.normal(1 / math.sqrt(shape[1]))(key, shape, dtype)


def check_poses(poses: Array | np.ndarray, argument: str = "poses", /, **sizes: int) -> None:
    """Raises a ValueError unless the last axes of `poses` have these sizes."""
    if poses.shape[-len(sizes) :] != tuple(sizes.values()):
        expected = " and ".join(f"{name} = {size}" for name, size in sizes.items())
        raise ValueError(f"the last axes of {argument} must be {expected}, got shape {poses.shape}")


def as_matrices(
    poses: Float[Array, "*batch I D"], kernel: Float[Array | np.ndarray, "I_or_1 X J Y"]
) -> Float[Array, "*batch I A X"]:
    """Returns poses [..., D] as matrices [..., A, X] for a kernel [I, X, J, Y]; A·X = D."""
    return poses.reshape(*poses.shape[:-1], poses.shape[-1] // kernel.shape[1], kernel.shape[1])
