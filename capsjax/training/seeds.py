"""One config, several seeds: mean and standard deviation instead of one number."""

import json
import os
import statistics
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from capsjax.data.stored import DEVICE_BUDGET_MB, Stored
from capsjax.training import hosts, snapshots, storage, workdir
from capsjax.training.loop import Result, side_by_side, train_runs
from capsjax.training.metrics import History
from capsjax.training.parallel import memory_limit, memory_needed
from capsjax.training.profiling import Profiler
from capsjax.training.setup import Setup, prepare
from capsjax.training.state import stack
from capsjax.training.watch import STALL_SECONDS, Watch

Together = Literal["auto", "yes", "no"]
# Of a device's memory, so that validation and the images have room beside the steps.
SHARE_OF_MEMORY = 0.7


class Several(NamedTuple):
    """The end of the runs of several seeds.

    Attributes:
      results: by seed.
      summary: what is in seeds.json.
    """

    results: dict[int, Result]
    summary: dict[str, Any]


def train(
    config: ml_collections.ConfigDict,
    directory: str | os.PathLike[str],
    *,
    together: Together = "auto",
    data_dir: str | None = None,
    device_budget_mb: float | None = DEVICE_BUDGET_MB,
    devices: Sequence[jax.Device] | None = None,
    stall_seconds: float = STALL_SECONDS,
    snapshot_every: int = 0,
    profile: tuple[int, int] | None = None,
    memory_profile: int | None = None,
) -> Several:
    """Trains the seeds `config.seed`, `config.seed` + 1, …, `config.seeds` of them.

    Each gets its own complete run in `directory`/seed_N, which is that of the same config with
    that seed; the accuracies of all go to `directory`/seeds.json. A second call goes on.

    Args:
      config: see `capsjax.training.config.default`.
      directory: as for `loop.train`.
      together: "yes" trains all in one program, `jax.vmap` over the seeds; "no" one after the
        other; "auto" together where the device's memory is known and suffices (not on CPUs, which
        gain nothing). The results are the same but for rounding.
      data_dir, device_budget_mb, devices, stall_seconds, snapshot_every, profile, memory_profile:
        as for `loop.train`; side by side, the profiles go to the first seed's directory.

    Raises:
      ValueError: what `loop.train` raises it for; together where that cannot be.
      Diverged, Interrupted: as `loop.train`.
    """
    hosts.check_started()
    Watch(stall_seconds)  # raises before anything is written
    if together not in ("auto", "yes", "no"):
        raise ValueError(f'together must be "auto", "yes" or "no", got {together!r}')
    if config.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {config.seeds}")
    place = storage.place(directory)
    seeds = range(config.seed, config.seed + config.seeds)
    places = {seed: place / f"seed_{seed}" for seed in seeds}
    setup = prepare(
        config,
        list(places.values()),
        data_dir=data_dir,
        device_budget_mb=device_budget_mb,
        devices=list(devices or jax.devices()),
    )
    # Raise before anything is written.
    snapshots.check_every(snapshot_every)
    Profiler(place, trace=profile, memory=memory_profile, total=setup.num_steps)
    side = _side_by_side(setup, list(seeds), together)
    hosts.from_first(lambda: workdir.claim(place, setup.config))
    setup.terminal.print(
        f"Seeds {seeds[0]} to {seeds[-1]}, {'side by side' if side else 'one after another'}."
    )
    groups = [places] if side else [{seed: path} for seed, path in places.items()]
    results = {
        seed: result
        for group in groups
        for seed, result in zip(
            group,
            train_runs(
                setup,
                group,
                stall_seconds=stall_seconds,
                snapshot_every=snapshot_every,
                profile=profile,
                memory_profile=memory_profile,
            ),
            strict=True,
        )
    }
    summary = summarize({seed: result.history for seed, result in results.items()})
    text = json.dumps(summary, indent=2) + "\n"
    hosts.from_first(lambda: storage.write_whole(place / "seeds.json", text))
    if "best" in summary:
        best, last = (_in_words(summary[which]) for which in ("best", "last"))
        setup.terminal.print(
            f"Validation accuracy of {len(seeds)} seeds: best {best}, last {last} (mean ± standard "
            f"deviation). Written to {place / 'seeds.json'}."
        )
    return Several(results, summary)


def summarize(histories: dict[int, History]) -> dict[str, Any]:
    """The best and the last validation accuracies: by seed, mean and standard deviation.

    The standard deviation is that of a sample (n − 1), and None for a single seed. Without
    held-out images there are no accuracies.
    """
    summary: dict[str, Any] = {"seeds": list(histories)}
    accuracies = [list(history.validation_accuracy().values()) for history in histories.values()]
    if all(accuracies):
        summary["best"] = _statistics([max(of_run) for of_run in accuracies])
        summary["last"] = _statistics([of_run[-1] for of_run in accuracies])
    return summary


def _statistics(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"by_seed": values, "mean": statistics.fmean(values), "std": deviation}


def _in_words(of: dict[str, Any]) -> str:
    deviation = "" if of["std"] is None else f" ± {100 * of['std']:.2f}"
    return f"{100 * of['mean']:.2f}{deviation} %"


def _side_by_side(setup: Setup, seeds: list[int], together: Together) -> bool:
    """Whether to train all in one program."""
    if len(seeds) == 1 or together == "no":
        return False
    obstacle = None
    if isinstance(setup.task.train.images, Stored):
        obstacle = "the images are fed from the host (device_budget_mb), in each run's own order"
    elif setup.config.training.stop_at_accuracy:
        obstacle = "training.stop_at_accuracy ends each run at its own step"
    if together == "yes":
        if obstacle:
            raise ValueError(f"the seeds cannot be trained together: {obstacle}")
        return True
    limit = memory_limit(setup.devices)
    if obstacle or limit is None:
        return False
    needed = memory_needed(side_by_side(setup), *_arguments(setup, seeds))
    return hosts.from_first(lambda: needed <= SHARE_OF_MEMORY * limit)


def _arguments(setup: Setup, seeds: list[int]) -> Any:
    """Of the program that trains all; shapes alone."""

    def arguments():
        states = stack([setup.first_state(seed) for seed in seeds])
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        return states, setup.task.train, keys, jnp.zeros(len(seeds), jnp.int32), None

    return jax.eval_shape(arguments)
