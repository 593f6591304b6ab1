"""Where in an image the capsules are that couple to a class capsule."""

from functools import partial
from typing import Any, NamedTuple

import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, UInt8

from capsjax.evaluation.batches import in_batches, outline
from capsjax.models import paths
from capsjax.training.build import abstract_model

MAX_ITERATIONS = 3  # that have maps: each takes a program of its own
AT_ONCE = 32  # images


class Axis(NamedTuple):
    """Where the positions of a grid are along one side of the image, in pixels."""

    centres: list[float]  # the middle of what each position sees
    # how much that is; None where it is all, or could not be told: the centres are then spread
    # evenly
    extent: int | None


class Couplings(NamedTuple):
    """Couplings to the class capsules as maps, by iteration, image, position and class."""

    means: Float[np.ndarray, "r n h w classes"]  # c_ij, the mean over the capsules at a position
    layer: str  # the name of the capsules' layer
    rows: Axis  # where the positions are
    columns: Axis
    iterations: list[int]  # the number of routing iterations behind each map


def couplings(
    model: Any, config: ml_collections.ConfigDict, images: UInt8[np.ndarray, "n h w c"]
) -> Couplings | str:
    """Returns the couplings of the last routing; or a sentence that says why there are no maps.

    They are multiplied along the way from the nearest capsules with positions.
    """
    path = _path(model, images.shape[1:])
    if isinstance(path, str):
        return path
    seen = np.concatenate([images, _probes(images.shape[1:])])
    answer, networks = partial(_maps, path), _networks(model, config)
    maps = [in_batches(answer, each, [seen], batch_size=AT_ONCE) for each in networks.values()]
    means, num = np.stack([mean for mean, _ in maps]), len(images)
    probed, side = maps[-1][1][num:], images.shape[1]
    # The poses of a position change with what it sees. Rounding may differ by the place in a batch.
    changed = np.abs(probed[1:] - probed[0]).max((-1, -2)) > 1e-5 * np.abs(probed[0]).max()
    rows, columns = _axis(changed[:side].any(2).T), _axis(changed[side:].any(1).T)
    return Couplings(means[:, :num], path[-1], rows, columns, list(networks))


def _networks(model: Any, config: ml_collections.ConfigDict) -> dict[int, Any]:
    """Builds the network, with its parameters, for each number of its routing iterations.

    Procedures return the couplings of their last iteration alone. It is the network itself where
    its config has no `num_iterations`, or other parameters go with another number.
    """
    last = config.model.get("num_iterations", 1)
    if config.model.get("routing") == "uniform":
        return {1: model}
    networks: dict[int, Any] = {}
    for number in np.linspace(1, last, min(last, MAX_ITERATIONS)).round().astype(int).tolist()[:-1]:
        changed = config.copy_and_resolve_references()
        changed.model.num_iterations = number
        abstract = abstract_model(changed)
        if _shapes(abstract) != _shapes(model):
            return {last: model}
        networks[number] = nnx.merge(nnx.graphdef(abstract), nnx.state(model))
    return networks | {last: model}


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {path: x.shape for path, x in paths.by_path(nnx.state(model)).items()}


def _path(model: Any, shape: tuple[int, ...]) -> tuple[str, ...] | str:
    """Lists the routings, the last one first, then the layer with positions; or says what lacks."""
    output = outline(model, shape)
    routed, layers = output.routed, list(output.features)
    if not routed:
        return "This network routes nothing: it has no couplings."
    top = next((name for name in reversed(layers) if name in routed), None)
    if top is None:
        return "The routings of this network are not among its captured layers: there are no maps."
    path, children = [top], routed[top].coupling.shape[1]
    for name in reversed(layers[: layers.index(top)]):
        sizes = output.features[name].shape
        if len(sizes) == 5 and sizes[1] * sizes[2] * sizes[3] == children:
            return (*path, name)
        coupling = routed[name].coupling.shape if name in routed else ()
        if len(coupling) != 3 or sizes[1] != children:
            break
        path.append(name)
        children = coupling[1]
    return (
        f"The couplings of this network's {top} capsules belong to no position of the image: "
        "there are no maps of them."
    )


def _maps(
    path: tuple[str, ...], model: Any, images: UInt8[Array, "n h w c"]
) -> tuple[Array, Array]:
    """Returns, by position, the mean coupling and the poses."""
    output = model(images, capture=True)
    *routings, layer = path
    flow = output.routed[routings[0]].coupling
    for name in routings[1:]:
        flow = output.routed[name].coupling @ flow
    poses = output.features[layer]
    return flow.reshape(*poses.shape[:-1], flow.shape[-1]).mean(-2), poses


def _probes(shape: tuple[int, ...]) -> UInt8[np.ndarray, "k h w c"]:
    """Makes noise, and for each row and column the same noise with that row or column changed."""
    height, width, _ = shape
    noise, other = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    probes = np.repeat(noise[None], 1 + height + width, axis=0)
    for row in range(height):
        probes[1 + row, row] = other[row]
    for column in range(width):
        probes[1 + height + column, :, column] = other[:, column]
    return probes


def _axis(touched: Bool[np.ndarray, "k side"]) -> Axis:
    """Makes an axis from the pixels that each position sees; at edges padding may hide some."""
    count, side = touched.shape
    first, last = touched.argmax(1), side - touched[:, ::-1].argmax(1)
    extents = np.where(touched.any(1), last - first, 0)
    whole = np.flatnonzero(extents == extents.max())
    if len(whole) < 2 or extents.max() in (0, side):
        return Axis([(i + 0.5) * side / count for i in range(count)], None)
    slope, start = np.polyfit(whole, (first + last)[whole] / 2, 1)
    centres = [round(float(start + slope * i), 2) for i in range(count)]
    return Axis(centres, int(extents.max()))
