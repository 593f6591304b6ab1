"""Convolutional capsules: gathers the capsules of k×k windows, and normalises over windows."""

import itertools
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from capsjax.functional import check_floating
from capsjax.routing._checks import check_counts
from capsjax.routing.kernels.layout import row_major
from capsjax.routing.votes import LinearVotes, placed_like

Padding = Literal["SAME", "VALID"]


def pose_patches(
    poses: Float[Array | np.ndarray, "..."],
    window: int,
    *,
    stride: int = 1,
    padding: Padding = "VALID",
    pose_axes: int = 2,
) -> Float[Array, "..."]:
    """Gathers the I = k·k·C capsules of each k×k window as the children of its position.

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
    """
    check_floating("poses", poses)
    check_counts(0, pose_axes=pose_axes)
    if poses.ndim < 3 + pose_axes:
        raise ValueError(
            f"poses must have axes [..., H, W, C] and {pose_axes} of pose_axes, "
            f"got shape {poses.shape}."
        )
    height, width = poses.shape[-3 - pose_axes : -1 - pose_axes]
    rows = Windows.of(height, window, stride, padding)
    columns = Windows.of(width, window, stride, padding)
    # Capsules and poses form one long axis, which accelerators lay out and move well.
    *batch, _, _, channels = poses.shape[: poses.ndim - pose_axes]
    pose = poses.shape[poses.ndim - pose_axes :]
    maps = jnp.asarray(poses).reshape(*batch, height, width, channels * math.prod(pose))
    along = {len(batch): rows, len(batch) + 1: columns}
    patches = gather(row_major(maps), along, window, stride)
    return row_major(patches).reshape(*patches.shape[:-1], window * window * channels, *pose)


def gather(x: Array, along: "Mapping[int, Windows]", window: int, stride: int) -> Array:
    """Replaces axes by positions of windows along them; joins a window's cells in the last axis."""
    pads = [(0, 0)] * x.ndim
    for axis, windows in along.items():
        # Zeros fill up the last step; no tap reaches them.
        pads[axis] = (windows.pads[0], windows.pads[1] + -windows.padded % stride)
    # Cells at every stride-th row and column, so that a tap is a slice without steps: their
    # gradient is far cheaper than that of a gather, a convolution, or slices with steps, for which
    # XLA spreads each tap over the whole grid before it adds them.
    cells: dict[tuple[int, ...], Array] = {(): jnp.pad(x, pads)}
    for axis in along:
        cells = {
            (*at, i): part
            for at, cell in cells.items()
            for i, part in enumerate(_every(cell, stride, axis))
        }

    def tap(offsets: tuple[int, ...]) -> Array:
        x = cells[tuple(offset % stride for offset in offsets)]
        for offset, (axis, windows) in zip(offsets, along.items(), strict=True):
            start = offset // stride
            x = lax.slice_in_dim(x, start, start + windows.number, axis=axis)
        return x

    offsets = itertools.product(range(window), repeat=len(along))
    return jnp.concatenate([tap(each) for each in offsets], axis=-1)


def _every(x: Array, stride: int, axis: int) -> list[Array]:
    """Splits an axis, whose length `stride` divides, into its `stride` interleaved parts."""
    if stride == 1:
        return [x]
    x = x.reshape(*x.shape[:axis], x.shape[axis] // stride, stride, *x.shape[axis + 1 :])
    return [jnp.squeeze(part, axis + 1) for part in lax.split(x, (1,) * stride, axis + 1)]


@jax.tree_util.register_pytree_node_class
class WindowVotes(LinearVotes):
    """The votes of the capsules under each position of a k×k window, for convolutional capsules.

    LinearVotes of `pose_patches(grid, window, …)`.

    Args:
      grid: matrix poses [..., H, W, C, A, X] (vectors with A = 1).
      kernel: [k·k·C, X, J, Y].
      window: k.
      stride, padding: as in `pose_patches`.
    """

    def __init__(
        self,
        grid: Float[Array | np.ndarray, "*batch H W C A X"],
        kernel: Float[Array | np.ndarray, "I X J Y"],
        window: int,
        *,
        stride: int = 1,
        padding: Padding = "VALID",
    ):
        patches = pose_patches(grid, window, stride=stride, padding=padding)
        super().__init__(patches, kernel)
        if kernel.shape[0] != patches.shape[-3]:
            raise ValueError(
                f"kernel must have an entry for each of the {patches.shape[-3]} children of a "
                f"window, got shape {kernel.shape}; LinearVotes takes one for all."
            )


def softmax_over_windows(
    logits: Float[Array, "*batch H_out W_out I J"],
    grid: tuple[int, int],
    window: int,
    *,
    stride: int = 1,
    padding: Padding = "VALID",
) -> Float[Array, "*batch H_out W_out I J"]:
    """Returns the log-softmax over all parents that a child reaches, in every window it lies in.

    The normaliser of Hinton et al. 2018 for `em_routing(normalize=…)` on patches: a child shared by
    several positions splits itself over the parents of them all.

    Args:
      logits: one logit for each position, child of its patch, and parent.
      grid: height and width of the children's grid.
      window, stride, padding: as in `pose_patches`.
    """
    rows, columns = (Windows.of(extent, window, stride, padding) for extent in grid)
    place, taps = (rows.number, columns.number), window * window
    if logits.ndim < 4 or logits.shape[-4:-2] != place or logits.shape[-2] % taps:
        raise ValueError(
            f"logits must be [..., H_out, W_out, I, J] with H_out, W_out = {place} and I a "
            f"multiple of {taps}, got {logits.shape}; give it the window, stride and padding of "
            "the patches."
        )
    channels = logits.shape[-2] // taps
    # The cell of the padded grid under each position and tap, in the order of patches.
    row = stride * np.arange(rows.number)[:, None] + np.arange(window)
    column = stride * np.arange(columns.number)[:, None] + np.arange(window)
    cells = (row[:, None, :, None] * columns.padded + column[None, :, None, :]).reshape(-1)
    num_cells = rows.padded * columns.padded
    window_sums = jax.nn.logsumexp(logits, axis=-1)
    batch = logits.shape[:-4]
    # In two steps, each of which merges or splits axes: on a mesh of explicit axes JAX then knows
    # how the result is divided.
    unfolded = (*logits.shape[:-2], taps, channels)
    folded = window_sums.reshape(unfolded).reshape(*batch, math.prod(place) * taps, channels)
    # A log-sum-exp over the windows of each cell, scattered to the cells and gathered back.
    folded = jnp.moveaxis(folded, -2, 0)
    zeros = placed_like(jnp.zeros((num_cells, *folded.shape[1:]), folded.dtype), folded[:1])
    largest = (zeros - jnp.inf).at[cells].max(lax.stop_gradient(folded))
    scaled = jnp.exp(folded - largest[cells])
    total = zeros.at[cells].add(scaled)
    log_total = jnp.log(total[cells]) + largest[cells]
    log_total = jnp.moveaxis(log_total, 0, -2)
    return logits - log_total.reshape(unfolded).reshape(logits.shape[:-1])[..., None]


class Windows(NamedTuple):
    """Where windows lie along one axis of a grid."""

    number: int
    pads: tuple[int, int]
    padded: int  # extent of the padded grid

    @classmethod
    def of(cls, extent: int, window: int, stride: int, padding: str) -> "Windows":
        check_counts(window=window, stride=stride)
        if padding not in get_args(Padding):
            raise ValueError(f'padding must be "SAME" or "VALID", got {padding!r}.')
        ((before, after),) = lax.padtype_to_pads((extent,), (window,), (stride,), padding)
        padded = before + extent + after
        if window > padded:
            raise ValueError(
                f"window must not exceed the grid's extent {extent}, got {window}; "
                f'use a smaller window or padding="SAME".'
            )
        return cls((padded - window) // stride + 1, (before, after), padded)
