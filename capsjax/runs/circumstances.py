"""What the bits of a run depend on beside its config: devices, cores, versions, JAX's settings."""

import os
import warnings
from collections.abc import Sequence
from importlib.metadata import version

import jax

from capsjax import _ledger

# Values by name, of types that JSON holds.
Circumstances = dict[str, str | int | bool | None]

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
SETTINGS = (
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_enable_x64",
    "jax_random_seed_offset",
    "jax_disable_most_optimizations",
)
VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "CAPSJAX_KERNELS")


def current(devices: Sequence[jax.Device]) -> Circumstances:
    """Returns the circumstances of a run on these devices, of all hosts, in this process.

    The cores count on CPU alone, where XLA divides sums by its threads.
    """
    circumstances: Circumstances = {
        "device kind": devices[0].device_kind,
        "devices": len(devices),
        "processes": len({device.process_index for device in devices}),
        "platform version": devices[0].client.platform_version,
    }
    for name in VARIABLES:
        circumstances[name] = " ".join(sorted(os.environ.get(name, "").split()))
    if devices[0].platform == "cpu":
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        circumstances["CPU cores"] = len(affinity(0)) if affinity else os.cpu_count()
    circumstances |= {package: version(package) for package in PACKAGES}
    # A later JAX may drop a setting.
    return circumstances | {name: jax.config.values.get(name) for name in SETTINGS}


def warn_of_changes(before: Circumstances, now: Circumstances) -> None:
    """Warns of what a resumed run finds changed; silent for runs that recorded no circumstances."""
    known = before.keys() & now.keys()
    before, now = ({name: values[name] for name in known} for values in (before, now))
    if changes := _ledger.differences(before, now):
        warnings.warn(
            f"resumed in other circumstances ({', '.join(changes)}): the run goes on, but will not "
            "end in the same bits as one that was not interrupted",
            RuntimeWarning,
            stacklevel=2,
        )
