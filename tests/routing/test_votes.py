"""The votes operators: four methods that agree with the dense tensor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from capsjax.routing import DenseVotes, LinearVotes


def linear(batch=(2,), i=5, a=2, x=3, j=4, y=2, shared=False, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0))
    poses = jax.random.normal(keys[0], (*batch, i, a, x), dtype)
    kernel = jax.random.normal(keys[1], (1 if shared else i, x, j, y), dtype)
    return LinearVotes(poses, kernel)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("a", [1, 2])
def test_linear_votes_agree_with_dense(shared, a):
    votes = linear(a=a, shared=shared)
    kernel = np.broadcast_to(votes.kernel, (5, *votes.kernel.shape[1:]))
    v = np.einsum("biax,ixjy->bijay", votes.poses, kernel).reshape(2, 5, 4, 2 * a)
    coupling = jax.random.uniform(jax.random.key(2), (2, 5, 4))
    poses = jax.random.normal(jax.random.key(3), (2, 4, 2 * a))
    for operator in (votes, DenseVotes(jnp.asarray(v))):
        np.testing.assert_allclose(operator.dense(), v, rtol=1e-5, atol=1e-6)
        for found, expected in (
            (operator.total(), v.sum(1)),
            (operator.combine(coupling), np.einsum("bij,bijd->bjd", coupling, v)),
            (operator.agreement(poses), np.einsum("bijd,bjd->bij", v, poses)),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_votes_are_pytrees():
    votes = linear()
    assert len(jax.tree.leaves(votes)) == 2
    mapped = jax.vmap(lambda v: v.total(), in_axes=(LinearVotes(0, None),))(votes)
    np.testing.assert_allclose(jax.jit(lambda v: v.total())(votes), mapped, rtol=1e-5)
    mesh, specs = Mesh(jax.devices()[:2], "data"), LinearVotes(P("data"), P())
    divided = jax.shard_map(LinearVotes.total, mesh=mesh, in_specs=(specs,), out_specs=P("data"))
    np.testing.assert_allclose(jax.jit(divided)(votes), mapped, rtol=1e-5)


def test_numpy_arrays_become_jax_arrays():
    """So that procedures and kernels see one type, as their annotations say."""
    votes = LinearVotes(np.ones((5, 1, 3), np.float32), np.ones((5, 3, 4, 2), np.float32))
    dense = DenseVotes(np.ones((5, 4, 2), np.float32))
    assert all(isinstance(x, jax.Array) for x in (votes.poses, votes.kernel, dense.votes))


@pytest.mark.parametrize("a", [1, 2])
def test_an_empty_batch_gives_empty_sums(a):
    votes = LinearVotes(jnp.ones((0, 3, a, 2)), jnp.ones((3, 2, 4, 2)))
    assert votes.combine(jnp.ones((0, 3, 4))).shape == (0, 4, 2 * a)
    assert votes.agreement(jnp.ones((0, 4, 2 * a))).shape == (0, 3, 4)
