"""Several trained networks, evaluated as one."""

from collections.abc import Sequence

import jax.numpy as jnp
import ml_collections
from flax import nnx

from capsjax.models.model import Images, Keys, Mask, Output


class Ensemble(nnx.Module):
    """Averages the scores of networks that have the same images, classes and kind of scores.

    Choi et al. 2019 report ensembles of 7 networks, trained separately from different seeds; they
    do not say how they join them.
    """

    def __init__(self, members: Sequence[nnx.Module]):
        self.members = nnx.List(members)

    def __call__(
        self, images: Images, *, mask: Mask = None, keys: Keys = None, capture: bool = False
    ) -> Output:
        """See `Model`. Returns no poses; what `capture` adds is called "member0/classes" …."""
        outputs = [member(images, mask=mask, keys=keys, capture=capture) for member in self.members]
        kind, *others = {output.score_kind for output in outputs}
        if others:
            raise ValueError("some members of the ensemble score with logits and some with lengths")
        members = {f"member{i}/": output for i, output in enumerate(outputs)}
        routed = {at + name: x for at, out in members.items() for name, x in out.routed.items()}
        features = {at + name: x for at, out in members.items() for name, x in out.features.items()}
        scores = jnp.mean(jnp.stack([output.scores for output in outputs]), axis=0)
        return Output(scores, routed=routed, features=features, score_kind=kind)


def join(models: Sequence[nnx.Module], configs: Sequence[ml_collections.ConfigDict]) -> nnx.Module:
    """Returns the ensemble of models restored by `capsjax.restore`; a single one is returned as is.

    Raises ValueError if they are for different images or classes.
    """
    if not models or len(models) != len(configs):
        raise ValueError(f"expected a config for each model, got {len(configs)} for {len(models)}")
    if len(models) == 1:
        return models[0]
    first, *others = ({**c.task, "data.fit": c.data.get("fit", "pad")} for c in configs)
    for n, other in enumerate(others, start=2):
        for key in ("input_shape", "class_names", "data.fit"):
            if other[key] != first[key]:
                raise ValueError(
                    f"member {n} of the ensemble has {key} {other[key]}, the first {first[key]}"
                )
    return Ensemble(models)
