"""What a checkpoint or a released file says about itself, as JSON beside its variables."""

from typing import Any, NamedTuple

import ml_collections

from capsjax.models.model import Model
from capsjax.runs.circumstances import Circumstances
from capsjax.runs.history import History
from capsjax.training import config as configs


class About(NamedTuple):
    """What stands beside the variables of a network."""

    config: ml_collections.ConfigDict  # of the run, with `task`
    history: History  # of its metrics
    circumstances: Circumstances  # in which it was trained

    def to_json(self) -> dict[str, Any]:
        """Returns what `parse` takes."""
        return {
            "config": configs.to_json(self.config),
            "history": self.history.to_json(),
            "circumstances": self.circumstances,
        }


class Checkpoint(NamedTuple):
    """One restored model.

    Attributes:
      model: the network, parameters in place.
      config: of the run; `config.task` holds `input_shape` and `class_names`.
      history: the run's metrics up to this step.
      step: number of training steps behind it.
    """

    model: Model
    config: ml_collections.ConfigDict
    history: History
    step: int


def parse(tree: Any, source: object) -> About:
    """Inverts `About.to_json`; raises ValueError, which names `source`, for anything else."""
    try:
        history = History(**tree["history"])
        return About(configs.from_json(tree["config"]), history, tree.get("circumstances", {}))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{source} does not hold what capsjax writes ({type(error).__name__}: {error})"
        ) from error
