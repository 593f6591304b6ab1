"""Many devices, one run: what is replicated and what is divided.

The only file that knows that steps are driven by `jax.pmap` (jit of shard_map, since JAX 0.8).
State and labels are replicated: ordinary arrays without a device axis, whole on every device, so a
checkpoint of one device is a checkpoint of any number of devices.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from capsjax.training.state import DEVICES

Devices = Sequence[jax.Device]


def check_batch_size(batch_size: int, num_devices: int, name: str = "batch_size") -> None:
    """Raises ValueError unless the devices can share a batch evenly."""
    if batch_size < 1 or batch_size % num_devices:
        raise ValueError(
            f"{name} must be a positive multiple of the number of devices, {num_devices}, got "
            f"{batch_size}"
        )


def replicate(tree: Any, devices: Devices) -> Any:
    """Copies every array of `tree` whole to every device, including those of other hosts.

    With several hosts all must make the call, with the same values.
    """
    sharding = NamedSharding(_mesh(devices), PartitionSpec())
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def put(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)))
        # `device_put` would gather the arrays of all hosts on every device, to compare them.
        array = np.asarray(leaf, order="C")
        checksum = np.uint32(zlib.crc32(array.reshape(-1).view(np.uint8).data))
        multihost_utils.assert_equal(checksum, "hosts hold different values of an array")
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(put, tree)


def of_this_process(devices: Devices) -> list[int]:
    """Returns the numbers of those `devices` that belong to this process."""
    return [n for n, d in enumerate(devices) if d.process_index == jax.process_index()]


def divide(tree: Any, devices: Devices) -> Any:
    """Puts `tree[n]` on the n-th of this process's `devices`, for every array in it."""
    local = [devices[n] for n in of_this_process(devices)]
    return jax.device_put(tree, NamedSharding(_mesh(local), PartitionSpec(DEVICES)))


class Program(NamedTuple):
    """A function that `on_devices` made."""

    mapped: Any
    mesh: Mesh  # of all devices
    places: np.ndarray  # as many numbers as devices of this process

    def __call__(self, *args: Any) -> Any:
        """Runs on the devices; `args` are what this process has of the divided arguments."""
        with jax.set_mesh(self.mesh):  # pmap takes no mesh that a caller has set
            return self.mapped((self.places,), *args)

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """Lowers for devices that need not exist, from shapes: all parts of what is divided."""
        return self.mapped.lower((np.arange(self.mesh.size),), *args)


def on_devices(
    function: Callable[..., Any],
    devices: Devices,
    in_axes: Sequence[Any],
    *,
    donate: tuple[int, ...] = (),
) -> Program:
    """Compiles `function`, which may use collectives over `DEVICES`, to run on all `devices`.

    Its outputs must be the same on all of them. For each argument `in_axes` has None if it is
    replicated, 0 if `divide` made it, or a tree of these; `donate` lists arguments to overwrite.
    """
    mapped = jax.pmap(
        # pmap wants one mapped argument; the place of a device is lax.axis_index.
        lambda _, *args: function(*args),
        axis_name=DEVICES,
        # A tuple: pmap would take flat axes for those of leaves if there are as many leaves.
        in_axes=((0,), *in_axes),
        out_axes=None,
        devices=devices,
        donate_argnums=tuple(n + 1 for n in donate),
    )
    return Program(mapped, _mesh(devices), np.arange(len(of_this_process(devices))))


def _mesh(devices: Devices) -> Mesh:
    return Mesh(np.asarray(devices), (DEVICES,))
