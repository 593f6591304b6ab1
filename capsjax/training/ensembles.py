"""Several restored networks, evaluated as one."""

from collections.abc import Sequence

from capsjax.models import Ensemble
from capsjax.training import evaluation
from capsjax.training.checkpoints import Checkpoint
from capsjax.training.state import split


def join(members: Sequence[Checkpoint]) -> Checkpoint:
    """The ensemble of `members` in place of a network: its scores are the mean of theirs.

    Config, history and step are those of the first; a single member comes back as it is.

    Raises:
      ValueError: the members take other images, tell other classes, or score in another way.
    """
    first, *others = members
    if not others:
        return first
    task = first.config.task
    for n, other in enumerate(others, start=2):
        for key in ("input_shape", "class_names"):
            if other.config.task[key] != task[key]:
                raise ValueError(
                    f"member {n} of the ensemble ({other.config.model.name}) has {key} "
                    f"{other.config.task[key]}, the first has {task[key]}: join networks that were "
                    "trained on the same images and classes"
                )
        if _gives_logits(other) != _gives_logits(first):
            kinds = ["logits" if _gives_logits(member) else "lengths" for member in members]
            raise ValueError(
                f"the members of the ensemble score differently ({', '.join(kinds)}): their "
                "mean means nothing: join networks with the same kind of scores"
            )
    return first._replace(model=Ensemble([member.model for member in members]))


def _gives_logits(member: Checkpoint) -> bool:
    return evaluation.gives_logits(*split(member.model), member.config.task.input_shape)
