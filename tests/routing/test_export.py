"""Routing of batches of a length that is not known when the program is made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.routing import dynamic_routing, em_routing, inverted_attention_routing, uniform_routing

PARENTS, SIZE = 3, 4


def inverted(votes):
    """With poses of a batch of unknown length, too."""
    first = inverted_attention_routing(votes, normalize=jax.nn.standardize)
    return inverted_attention_routing(votes, first.poses, normalize=jax.nn.standardize)


@pytest.mark.symbolic_sizes
@pytest.mark.parametrize(
    "routing",
    [
        lambda votes: dynamic_routing(votes, bias=jnp.full((PARENTS, SIZE), 0.1)),
        lambda votes: uniform_routing(votes, bias=jnp.full((PARENTS, SIZE), 0.1)),
        lambda votes: em_routing(
            votes, jnp.full(votes.shape[:-2], 0.7), jnp.zeros(PARENTS), jnp.zeros(PARENTS)
        ),
        inverted,
    ],
    ids=["dynamic", "uniform", "em", "inverted"],
)
def test_exported_for_batches_of_any_length(routing):
    def poses(votes):
        return routing(votes).poses

    of_any = jax.ShapeDtypeStruct(
        jax.export.symbolic_shape(f"b, 5, {PARENTS}, {SIZE}"), jnp.float32
    )
    exported = jax.export.export(jax.jit(poses))(of_any)
    for length in (1, 7):
        votes = jax.random.normal(jax.random.key(length), (length, 5, PARENTS, SIZE), jnp.float32)
        np.testing.assert_allclose(
            exported.call(votes), jax.jit(poses)(votes), rtol=1e-5, atol=1e-6
        )
