"""The layers of Efficient-CapsNet: capsules that see a whole map, and routing with a prior."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from capsjax.functional import exponential_squash
from capsjax.layers.transforms import check_poses
from capsjax.routing import Routed, Votes, self_attention_routing


class SelfAttentionRouting(nnx.Module):
    """`self_attention_routing` with its learned prior b, initially 0: for `DenseCapsules`."""

    def __init__(self, num_children: int, num_parents: int):
        self.prior = nnx.Param(jnp.zeros((num_children, num_parents), jnp.float32))

    def __call__(self, votes: Votes | Float[Array, "*batch I J D"]) -> Routed:
        """Returns poses [..., J, D] and couplings [..., I, J]."""
        return self_attention_routing(votes, self.prior[...])


class DepthwiseCapsules(nnx.Module):
    """Capsules that each see a whole feature map: a depthwise convolution with one position.

    Mazzia et al. 2021: one filter per channel, as large as the map; `pose_size` consecutive
    channels form a capsule. Rows and columns of the map beyond `kernel_size` are ignored. Computed
    as a product and a sum: XLA's grouped convolutions are slow to differentiate on a CPU.
    """

    def __init__(
        self,
        features: int,
        pose_size: int,
        kernel_size: int | tuple[int, int],
        *,
        activation: Callable[[jax.Array], jax.Array] = exponential_squash,
        rngs: nnx.Rngs,
    ):
        if features % pose_size:
            raise ValueError(f"features must be a multiple of {pose_size=}, got {features}")
        self.pose_size, self.activation = pose_size, activation
        sides = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        # A filter of one channel, as initialisers see it, is [k, k, 1, features].
        init = nnx.initializers.glorot_uniform()
        self.kernel = nnx.Param(init(rngs.params(), (*sides, 1, features), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(features, jnp.float32))

    def __call__(self, features: Float[Array, "*batch h w c"]) -> Float[Array, "*batch C D"]:
        rows, columns, _, channels = self.kernel.shape
        seen = features[..., :rows, :columns, :]
        check_poses(seen, "features", rows=rows, columns=columns, channels=channels)
        sums = jnp.sum(seen * self.kernel[...][:, :, 0], axis=(-3, -2)) + self.bias[...]
        capsules = channels // self.pose_size
        return self.activation(sums.reshape(*sums.shape[:-1], capsules, self.pose_size))
