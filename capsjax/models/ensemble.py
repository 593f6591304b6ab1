"""Several trained networks as one."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from capsjax.models.interface import Output


class Ensemble(nnx.Module):
    """The mean of what several networks score, for evaluation.

    Choi et al. 2019 report ensembles of 7 networks, trained apart from different seeds; how they
    join them is not said.

    Args:
      members: networks for the same images and classes, with the same kind of scores.

    Raises:
      ValueError: no members.
    """

    def __init__(self, members: Sequence[nnx.Module]):
        if not members:
            raise ValueError("members must hold at least one network, got none")
        self.members = nnx.List(members)

    def __call__(
        self,
        images: Float[Array, "n h w c"] | UInt8[Array, "n h w c"],
        *,
        mask: Float[Array, "n *targets classes"] | None = None,
        keys: PRNGKeyArray | None = None,
        capture: bool = False,
    ) -> Output:
        """Mean scores, and no poses: those of different networks do not compare.

        Args:
          images: as the members take them.
          mask: as the members take it; their reconstructions are not returned.
          keys: for the members' dropout, the same for all.
          capture: return what the members' layers and routings made: "member0/classes" and so on.
        """
        outputs = [member(images, mask=mask, keys=keys, capture=capture) for member in self.members]
        routed, features = {}, {}
        for i, output in enumerate(outputs):
            routed.update({f"member{i}/{name}": x for name, x in output.routed.items()})
            features.update({f"member{i}/{name}": x for name, x in output.features.items()})
        scores = jnp.mean(jnp.stack([output.scores for output in outputs]), axis=0)
        kind = outputs[0].score_kind
        return Output(scores, routed=routed, features=features, score_kind=kind)
