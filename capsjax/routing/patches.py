"""Convolutional use: the capsules of k×k windows, and what routing needs to know of windows."""

import itertools
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from capsjax.routing._checks import check_count, check_floating
from capsjax.routing.kernels.layout import row_major

Padding = Literal["SAME", "VALID"]


def pose_patches(
    poses: Float[Array, "..."],
    window: int,
    *,
    stride: int = 1,
    padding: Padding = "VALID",
    pose_axes: int = 2,
) -> Float[Array, "..."]:
    """The I = k·k·C capsules under each position of a k×k window, as the children of that position.

    Children are in the order (row, column, capsule). SAME pads with zeros, as a convolution does:
    such children have zero votes and, like all others, a share of every softmax.

    Args:
      poses: capsules on a grid [..., H, W, C, *pose].
      window: k.
      stride: step between windows.
      padding: "SAME" (output ⌈H / stride⌉) or "VALID" (windows inside the grid only).
      pose_axes: trailing axes that belong to one capsule: 2 for matrix poses [A, X] (as LinearVotes
        takes them), 1 for vectors, 0 for activations.

    Returns:
      The patches [..., H_out, W_out, I, *pose].

    Raises:
      TypeError: `poses` is no floating array, or a number is no int.
      ValueError: too few axes, an unknown padding, a window that does not fit.
    """
    check_floating("poses", poses)
    if poses.ndim < 3 + pose_axes:
        raise ValueError(
            f"poses must have axes [..., H, W, C] and {pose_axes} of pose_axes, "
            f"got shape {poses.shape}."
        )
    height, width = poses.shape[-3 - pose_axes : -1 - pose_axes]
    rows = _Windows.of(height, window, stride, padding)
    columns = _Windows.of(width, window, stride, padding)
    # Capsules and their poses as one long axis: what accelerators lay out and move well.
    *batch, _, _, channels = poses.shape[: poses.ndim - pose_axes]
    pose = poses.shape[poses.ndim - pose_axes :]
    maps = poses.reshape(*batch, height, width, channels * math.prod(pose))
    padded = jnp.pad(row_major(maps), [(0, 0)] * len(batch) + [rows.pads, columns.pads, (0, 0)])

    def shifted(row: int, column: int) -> Array:
        axis = len(batch)
        slab = lax.slice_in_dim(padded, row, row + rows.reach, stride, axis)
        return lax.slice_in_dim(slab, column, column + columns.reach, stride, axis + 1)

    # Strided slices: on CPU their gradient is far cheaper than that of a gather or a convolution.
    offsets = itertools.product(range(window), repeat=2)
    patches = jnp.concatenate([shifted(*offset) for offset in offsets], axis=-1)
    return row_major(patches).reshape(*patches.shape[:-1], window * window * channels, *pose)


def uniform_convolution(
    poses: Float[Array, "*batch H W C A X"],
    kernel: Float[Array, "I X J Y"],
    window: int,
    *,
    stride: int = 1,
    padding: Padding = "VALID",
) -> Float[Array, "*batch H_out W_out J D"]:
    """Σ_i v_ij of every window as one ordinary convolution: the uniform first iteration.

    Equal to `LinearVotes(pose_patches(poses, …), kernel).total()` without making patches, on
    accelerators. On CPU it is that: XLA's gradients of strided convolutions are slow there.

    Args:
      poses: matrix poses on a grid.
      kernel: the kernel of LinearVotes for the patches, I = k·k·C.
      window: k.
      stride: as in `pose_patches`.
      padding: as in `pose_patches`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: `kernel` does not fit the windows.
    """
    check_floating("poses", poses)
    check_floating("kernel", kernel)
    if poses.ndim < 5:
        raise ValueError(f"poses must have axes [..., H, W, C, A, X], got shape {poses.shape}.")
    *batch, height, width, channels, rows, columns = poses.shape
    expected = (window * window * channels, columns)
    if kernel.ndim != 4 or kernel.shape[:2] != expected:
        raise ValueError(
            f"kernel must be [I, X, J, Y] with I = window² · C and X = {expected} for poses "
            f"{poses.shape} and window {window}, got {kernel.shape}."
        )
    parents, size = kernel.shape[2:]
    top = _Windows.of(height, window, stride, padding)
    left = _Windows.of(width, window, stride, padding)
    wide = jnp.promote_types(jnp.result_type(poses, kernel), jnp.float32)

    def by_patches(poses: Array, kernel: Array) -> Array:
        patches = pose_patches(poses, window, stride=stride, padding=padding)
        votes = jnp.einsum("...iax,ixjy->...jay", patches, kernel, preferred_element_type=wide)
        return votes.reshape(*votes.shape[:-2], rows * size)

    def by_convolution(poses: Array, kernel: Array) -> Array:
        # The rows of a pose are transformed alike: they join the batch.
        maps = jnp.moveaxis(poses, -2, -5).reshape(-1, height, width, channels * columns)
        filters = kernel.reshape(window, window, channels * columns, parents * size)
        sums = lax.conv_general_dilated(
            maps.astype(wide),
            filters.astype(wide),
            (stride, stride),
            (top.pads, left.pads),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        sums = sums.reshape(*batch, rows, *sums.shape[1:3], parents, size)
        return jnp.moveaxis(sums, -5, -2).reshape(*batch, *sums.shape[-4:-2], parents, rows * size)

    return lax.platform_dependent(poses, kernel, cpu=by_patches, default=by_convolution)


def softmax_over_windows(
    logits: Float[Array, "*batch H_out W_out I J"],
    grid: tuple[int, int],
    window: int,
    *,
    stride: int = 1,
    padding: Padding = "VALID",
) -> Float[Array, "*batch H_out W_out I J"]:
    """log softmax over all parents that a child reaches, in every window it lies in.

    The normaliser of Hinton et al. 2018 for `em_routing(normalize=…)` on patches: a child shared by
    several positions splits itself over the parents of them all.

    Args:
      logits: one logit for each position, child of its patch, and parent.
      grid: height and width of the children's grid.
      window: as in `pose_patches`, also stride and padding.

    Raises:
      ValueError: `logits` does not have the axes that such patches have.
    """
    rows, columns = (_Windows.of(extent, window, stride, padding) for extent in grid)
    positions, taps = rows.number * columns.number, window * window
    if (
        logits.ndim < 4
        or logits.shape[-4:-2] != (rows.number, columns.number)
        or logits.shape[-2] % taps
    ):
        raise ValueError(
            f"logits must be [..., H_out, W_out, I, J] with H_out, W_out = "
            f"{(rows.number, columns.number)} and I a multiple of {taps}, got {logits.shape}; "
            f"give it the window, stride and padding of the patches."
        )
    channels = logits.shape[-2] // taps
    cells = _cells(rows, columns, window, stride)
    num_cells = rows.padded * columns.padded
    window_sums = jax.nn.logsumexp(logits, axis=-1)
    folded = window_sums.reshape(-1, positions * taps, channels)
    # A log-sum-exp over the windows of each cell, scattered to the cells and gathered back.
    folded = jnp.moveaxis(folded, 1, 0)
    largest = lax.stop_gradient(jax.ops.segment_max(folded, cells, num_cells))
    scaled = jnp.exp(folded - largest[cells])
    total = jax.ops.segment_sum(scaled, cells, num_cells)
    log_total = jnp.log(total[cells]) + largest[cells]
    return logits - jnp.moveaxis(log_total, 0, 1).reshape(*window_sums.shape, 1)


class _Windows(NamedTuple):
    """Where windows lie along one axis of a grid."""

    number: int
    pads: tuple[int, int]
    padded: int  # extent of the padded grid
    reach: int  # from the first to the last place of one tap

    @classmethod
    def of(cls, extent: int, window: int, stride: int, padding: str) -> "_Windows":
        check_count("window", window)
        check_count("stride", stride)
        if padding == "SAME":
            number = math.ceil(extent / stride)
            missing = max((number - 1) * stride + window - extent, 0)
        elif padding == "VALID":
            if window > extent:
                raise ValueError(
                    f"window must not exceed the grid's extent {extent}, got {window}; "
                    f'use a smaller window or padding="SAME".'
                )
            number, missing = (extent - window) // stride + 1, 0
        else:
            raise ValueError(f'padding must be "SAME" or "VALID", got {padding!r}.')
        pads = (missing // 2, missing - missing // 2)
        return cls(number, pads, extent + missing, (number - 1) * stride + 1)


def _cells(rows: _Windows, columns: _Windows, window: int, stride: int) -> np.ndarray:
    """The cell of the padded grid under each position and tap, in the order of patches."""
    row = stride * np.arange(rows.number)[:, None] + np.arange(window)
    column = stride * np.arange(columns.number)[:, None] + np.arange(window)
    cell = row[:, None, :, None] * columns.padded + column[None, :, None, :]
    return cell.reshape(-1)
