"""One config, several seeds: mean and standard deviation instead of one number."""

import json
import os
import statistics
from typing import Any, NamedTuple

import ml_collections

from capsjax import _files
from capsjax.runs import hosts
from capsjax.runs.directory import claimed, write
from capsjax.runs.display import say
from capsjax.runs.history import History
from capsjax.runs.loop import Result, agreed, train


class SeedResults(NamedTuple):
    """What `train_seeds` returns."""

    results: dict[int, Result]  #: by seed
    summary: dict[str, Any]  #: the contents of seeds.json


def train_seeds(
    config: ml_collections.ConfigDict, directory: str | os.PathLike[str], **options: Any
) -> SeedResults:
    """Trains `config.seeds` seeds, `config.seed`, `config.seed` + 1, …, one after another.

    Each gets its own complete run in `directory`/seed_N, identical to a run of the same config with
    that seed alone; the accuracies of all go to `directory`/seeds.json. See `loop.train`.
    """
    workdir, config = _files.absolute(directory), agreed(config)
    seeds = range(config.seed, config.seed + config.seeds)
    with claimed(workdir, config) as key_version:
        say(f"Seeds {seeds[0]} to {seeds[-1]}, one after another.")
        results, own = {}, config.copy_and_resolve_references()
        own.key_version = key_version
        hosts.from_first_host(lambda: write(workdir, own))
        for seed in seeds:
            own.seed, own.seeds = seed, 1
            results[seed] = train(own, workdir / f"seed_{seed}", **options)
        summary = summarize({seed: result.history for seed, result in results.items()})
        text = json.dumps(summary, indent=2) + "\n"
        hosts.from_first_host(lambda: _files.write_atomically(workdir / "seeds.json", text))
    if "best" in summary:
        best, last = (_in_words(summary[which]) for which in ("best", "last"))
        say(
            f"Validation accuracy of {len(seeds)} seeds: best {best}, last {last} (mean ± standard "
            f"deviation). Written to {workdir / 'seeds.json'}."
        )
    return SeedResults(results, summary)


def summarize(histories: dict[int, History]) -> dict[str, Any]:
    """Summarizes the best and the last validation accuracies: by seed, mean and deviation."""
    summary: dict[str, Any] = {"seeds": list(histories)}
    accuracies = [list(history.validation_accuracy().values()) for history in histories.values()]
    if all(accuracies):
        summary["best"] = _statistics([max(of_run) for of_run in accuracies])
        summary["last"] = _statistics([of_run[-1] for of_run in accuracies])
    return summary


def _statistics(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"by_seed": values, "mean": statistics.fmean(values), "std": deviation}


def _in_words(numbers: dict[str, Any]) -> str:
    deviation = "" if numbers["std"] is None else f" ± {100 * numbers['std']:.2f}"
    return f"{100 * numbers['mean']:.2f}{deviation} %"
