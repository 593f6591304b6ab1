"""What a checkpoint or a released file says about itself, as JSON beside its variables."""

import os
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import ml_collections

from capsjax._names import differences
from capsjax.models.model import Model
from capsjax.runs.history import History
from capsjax.training import config as configs

# What the exact numbers of a run depend on besides its config: values by name, for JSON.
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


class About(NamedTuple):
    """What stands beside the variables of a network."""

    config: ml_collections.ConfigDict  # of the run, with `task`
    history: History  # of its metrics
    circumstances: Circumstances  # in which it was trained

    def to_json(self) -> dict[str, Any]:
        """Returns what `parse` takes."""
        config, history = configs.to_json(self.config), self.history.to_json()
        return {"config": config, "history": history, "circumstances": self.circumstances}


class Checkpoint(NamedTuple):
    """One restored model."""

    model: Model  #: parameters in place
    config: ml_collections.ConfigDict  #: `config.task` holds `input_shape` and `class_names`
    history: History  #: the run's metrics up to this step
    step: int  #: training steps behind it


def parse(tree: Any, source: object) -> About:
    """Inverts `About.to_json`; raises ValueError, which names `source`, for anything else."""
    try:
        history = History(**tree["history"])
        return About(configs.from_json(tree["config"]), history, tree.get("circumstances", {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{source} does not hold what capsjax writes ({error!r})") from error


def current_circumstances(devices: Sequence[jax.Device]) -> Circumstances:
    """Returns the circumstances of a run on these devices, of all hosts, in this process."""
    circumstances: Circumstances = {
        "device kind": devices[0].device_kind,
        "devices": len(devices),
        "processes": len({device.process_index for device in devices}),
        "platform version": devices[0].client.platform_version,
    }
    for name in VARIABLES:
        circumstances[name] = " ".join(sorted(os.environ.get(name, "").split()))
    if devices[0].platform == "cpu":  # where XLA divides sums by its threads
        circumstances["CPU cores"] = cores()
    circumstances |= {package: version(package) for package in PACKAGES}
    # A later JAX may drop a setting.
    return circumstances | {name: jax.config.values.get(name) for name in SETTINGS}


def cores() -> int | None:
    """Returns the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count()


def warn_of_changes(before: Circumstances, now: Circumstances) -> None:
    """Warns a resumed run of recorded circumstances that have changed."""
    known = before.keys() & now.keys()
    if changes := differences(*({name: x[name] for name in known} for x in (before, now))):
        warnings.warn(
            f"resumed in other circumstances ({', '.join(changes)}): the run goes on, but will not "
            "end in the same bits as one that was not interrupted",
            RuntimeWarning,
            stacklevel=2,
        )
