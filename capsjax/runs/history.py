"""The metrics of a run, step by step."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

Record = dict[str, Any]


class Diverged(ArithmeticError):
    """A loss, a gradient or a score is no longer finite."""


class History:
    """The records of a run in order, and the sums of the interval that is not finished yet.

    A record is `{"step", "epoch", "split"}` and numbers: for split "train" the means over
    `steps` steps up to and including `step`, for "validation" the results at that step. It holds
    no times, so that a run that was interrupted has the same history as one that was not.
    """

    def __init__(self, records: list[Record] | None = None, open_sums: Record | None = None):
        self.records = records or []
        self._open = open_sums or {"steps": 0}

    @property
    def epochs(self) -> int:
        """How many have begun, as far as it is recorded."""
        return max((record["epoch"] for record in self.records), default=0)

    def to_json(self) -> Record:
        """Copies the history, as saves overlap training; `History(**...)` restores it."""
        return {"records": list(self.records), "open_sums": dict(self._open)}

    def add_steps(
        self, first: int, metrics: dict[str, Float[np.ndarray, "steps"]], *, every: int, epoch: int
    ) -> None:
        """Adds the metrics of the steps after `first`; makes a record at multiples of `every`."""
        for i in range(len(metrics["loss"])):
            step = first + i + 1
            values = {name: float(array[i]) for name, array in metrics.items()}
            # The loss first: where it is not finite, its gradient is not either.
            for name in sorted(values, key=lambda name: name != "loss"):
                if not math.isfinite(values[name]):
                    raise Diverged(f"{name} is {values[name]} at step {step} (epoch {epoch})")
            for name, value in values.items():
                self._open[name] = self._open.get(name, 0.0) + value
            self._open["steps"] += 1
            if step % every == 0:
                self.close_interval(step, epoch)

    def close_interval(self, step: int, epoch: int) -> None:
        """Makes a record of the steps since the last one, if there were any."""
        if steps := self._open.pop("steps"):
            means = {name: total / steps for name, total in self._open.items()}
            where = {"step": step, "epoch": epoch, "split": "train", "steps": steps}
            self.records.append(where | means)
        self._open = {"steps": 0}

    def add_validation(self, step: int, epoch: int, accuracy: float) -> None:
        where = {"step": step, "epoch": epoch, "split": "validation"}
        self.records.append(where | {"accuracy": accuracy})

    def epoch_means(self, epoch: int) -> dict[str, float]:
        """Returns the training metrics of one epoch."""
        records = [r for r in self.records if r["split"] == "train" and r["epoch"] == epoch]
        steps = [r["steps"] for r in records]
        names = records[0].keys() - {"step", "epoch", "split", "steps"}
        return {n: float(np.average([r[n] for r in records], weights=steps)) for n in names}

    def training(self, name: str) -> dict[int, float]:
        """Returns a metric of training, by step."""
        return {r["step"]: r[name] for r in self.records if r["split"] == "train"}

    def validation_accuracy(self) -> dict[int, float]:
        """Returns the validation accuracies, by step."""
        return {r["step"]: r["accuracy"] for r in self.records if r["split"] == "validation"}
