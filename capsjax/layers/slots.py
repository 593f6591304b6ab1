"""Slot attention with its learned parameters: from a set of inputs to a few slots."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from capsjax.layers.transforms import check_poses
from capsjax.routing import Routed, slot_attention
from capsjax.routing._checks import check_counts
from capsjax.routing.votes import placed_like


class SlotAttention(nnx.Module):
    """Slots that are updated by attention, a GRU and an MLP (Locatello et al. 2020, algorithm 1).

      s ← GRU(s, slot_attention(LayerNorm(x), LayerNorm(s) W_q))
      s ← s + MLP(LayerNorm(s))                `num_iterations` times

    As in Slot Attention for Video (google-research/slot-attention-video), whose parameters fit:

      general_dense_{q, k, v}_0        query, key, value, without the axis of the one head
      LayerNorm_0, LayerNorm_1         norm_slots, norm_inputs
      GRU_0/GRUCell_0/{ir, iz, in}     gru.dense_i: side by side in its last axis
      GRU_0/GRUCell_0/{hr, hz, hn}     gru.dense_h; hr and hz have no bias: zeros
      MLP_0/LayerNorm_0                norm_mlp
      MLP_0/dense_mlp_{0, 1}           hidden, out

    Args:
      in_features: D, the size of the inputs.
      num_slots: J.
      slot_size: of the slots, queries, keys and values.
      mlp_size: units of the MLP's hidden layer, with ReLU.
      num_iterations: at least 1.
      implicit: iterate `num_iterations` times without gradients, then once more with them, which
        is the first term of the gradient at a fixed point (Chang et al. 2022): memory and time of
        the backward pass are those of one iteration. The first slots then get no gradient.
    """

    def __init__(
        self,
        in_features: int,
        num_slots: int,
        slot_size: int,
        mlp_size: int,
        *,
        num_iterations: int = 3,
        implicit: bool = False,
        rngs: nnx.Rngs,
    ):
        check_counts(num_slots=num_slots, num_iterations=num_iterations)
        check_counts(in_features=in_features, slot_size=slot_size, mlp_size=mlp_size)
        self.in_features, self.num_slots, self.slot_size = in_features, num_slots, slot_size
        self.num_iterations, self.implicit = num_iterations, implicit
        glorot = nnx.initializers.glorot_uniform()

        def param(*shape: int) -> nnx.Param:
            return nnx.Param(glorot(rngs.params(), shape, jnp.float32))

        self.mean, self.log_std = param(1, slot_size), param(1, slot_size)
        self.query = param(slot_size, slot_size)
        self.key, self.value = param(in_features, slot_size), param(in_features, slot_size)
        self.norm_inputs = nnx.LayerNorm(in_features, rngs=rngs)
        self.norm_slots = nnx.LayerNorm(slot_size, rngs=rngs)
        self.norm_mlp = nnx.LayerNorm(slot_size, rngs=rngs)
        # Unlike the functions of `jax.nn`, which call them, these can be pickled.
        self.gru = nnx.GRUCell(
            slot_size, slot_size, gate_fn=lax.logistic, activation_fn=lax.tanh, rngs=rngs
        )
        # Linen's cell, unlike NNX's, has a bias in W_hn h + b_hn.
        self.gru.dense_h = nnx.Linear(
            slot_size, 3 * slot_size, kernel_init=nnx.initializers.orthogonal(), rngs=rngs
        )
        self.hidden = nnx.Linear(slot_size, mlp_size, rngs=rngs)
        self.out = nnx.Linear(mlp_size, slot_size, rngs=rngs)

    def __call__(
        self,
        inputs: Float[Array, "n N D"],
        slots: Float[Array, "n J S"] | None = None,
        *,
        keys: Key[Array, "n"] | None = None,
        mask: Float[Array, "n N"] | Bool[Array, "n N"] | None = None,
    ) -> Routed:
        """Returns slots [n, J, S] and the coupling [n, N, J] of the last iteration.

        Args:
          inputs: such as the positions of a feature map.
          slots: to start from; None draws them from the learned Gaussian.
          keys: one per example for that draw; None: the same slots for all examples and calls.
          mask: see `capsjax.routing.slot_attention`.
        """
        if inputs.ndim != 3 or not inputs.shape[1]:
            raise ValueError(f"inputs must be [n, N, D], N at least 1; got shape {inputs.shape}")
        check_poses(inputs, "inputs", in_features=self.in_features)
        start = self.first_slots(inputs.shape[0], keys) if slots is None else slots
        if start.ndim != 3 or start.shape[::2] != (inputs.shape[0], self.slot_size):
            expected = f"[{inputs.shape[0]}, J, {self.slot_size}], as many examples as inputs"
            raise ValueError(f"slots must be {expected}; got shape {start.shape}")
        inputs = self.norm_inputs(inputs)
        # A loop's carry must have the dtype and devices that the loop returns.
        start = start.astype(jnp.promote_types(start.dtype, inputs.dtype))
        start = placed_like(start, inputs[:, :1, :1])

        def step(slots: Array) -> tuple[Array, Array]:
            queries = self.norm_slots(slots) @ self.query[...]
            updates, coupling, _ = slot_attention(
                inputs, queries, self.key[...], self.value[...], mask=mask
            )
            slots, _ = self.gru(slots, updates)
            return slots + self.out(nnx.relu(self.hidden(self.norm_mlp(slots)))), coupling

        # The last iteration stands outside the loop: only its coupling is asked for.
        before = self.num_iterations - (not self.implicit)
        last = lax.fori_loop(0, before, lambda _, slots: step(slots)[0], start)
        return Routed(*step(lax.stop_gradient(last) if self.implicit else last))

    def first_slots(
        self, num_examples: int, keys: Key[Array, "n"] | None = None
    ) -> Float[Array, "n J S"]:
        """Draws slots from the learned Gaussian; see `__call__` for the keys."""
        shape = (self.num_slots, self.slot_size)
        keys = jnp.broadcast_to(jax.random.key(0), (num_examples,)) if keys is None else keys
        if keys.shape != (num_examples,):
            raise ValueError(f"keys must be {num_examples} of jax.random.split, got {keys.shape}")
        noise = jax.vmap(lambda key: jax.random.normal(key, shape, jnp.float32))(keys)
        return self.mean[...] + jnp.exp(self.log_std[...]) * noise.astype(self.mean[...].dtype)
