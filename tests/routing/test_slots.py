"""What slot attention computes and holds; its numbers are in test_reference.py."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from capsjax.routing import slot_attention, slots

N, D, J, K, V = 50, 6, 3, 5, 4


def arrays(batch=()):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (*batch, N, D), (*batch, J, K), (D, K), (D, V)
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def test_masked_inputs_are_as_if_they_were_not_there():
    inputs, *rest = arrays()
    mask = np.arange(N) < 30
    masked, without = slot_attention(inputs, *rest, mask=mask), slot_attention(inputs[:30], *rest)
    np.testing.assert_allclose(masked.poses, without.poses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(masked.coupling[:30], without.coupling, rtol=1e-5)
    assert not np.any(masked.coupling[30:])
    assert not np.any(slot_attention(inputs, *rest, mask=np.zeros(N, bool)).poses)


def test_one_argument_for_all_examples():
    """Learned queries, or one mask: broadcast, on one device and on two."""
    inputs, _, *kernels = arrays((2,))
    queries, mask = arrays()[1], jnp.arange(N) < 30

    def gradient(queries, inputs, mask=mask):
        def loss(queries, inputs):
            return jnp.sum(jnp.sin(slot_attention(inputs, queries, *kernels, mask=mask).poses))

        return jax.grad(loss, (0, 1))(queries, inputs)

    every = gradient(jnp.broadcast_to(queries, (2, J, K)), inputs, jnp.stack([mask, mask]))
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    one, data = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("data")
    divided = jax.shard_map(gradient, mesh=mesh, in_specs=(one, data), out_specs=(one, data))
    for f in (gradient, jax.jit(divided)):
        of_queries, of_inputs = f(queries, inputs)
        np.testing.assert_allclose(of_queries, every[0].sum(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(of_inputs, every[1], rtol=1e-4, atol=1e-5)


def test_vmap_is_a_batch():
    inputs, queries, *kernels = arrays((2,))
    batch = slot_attention(inputs, queries, *kernels)
    mapped = jax.vmap(lambda x, q: slot_attention(x, q, *kernels))(inputs, queries)
    for ours, theirs in zip(batch[:2], mapped[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_neither_keys_nor_values_nor_couplings_are_held():
    def shapes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (v.aval.shape for v in equation.outvars)
            for inner in jaxprs_in_params(equation.params):
                yield from shapes(inner)

    formed = set(shapes(jax.make_jaxpr(slot_attention)(*arrays()).jaxpr))
    assert not {shape for shape in formed if N in shape and (K in shape or V in shape)}
    # What the backward pass is given, beside the arguments, does not grow with the inputs.
    _, pull = jax.vjp(lambda *a: slot_attention(*a).poses, *arrays())
    held = [leaf.shape for leaf in jax.tree.leaves(pull) if N in leaf.shape]
    assert set(held) == {(N, D)}


def test_the_gradients_form_for_gpus_is_the_other_one():
    x, pulled, *_ = arrays()
    arguments = pulled @ jnp.ones((K, D)), jnp.cos(pulled) @ jnp.ones((K, D)), x, jnp.ones((J, N))
    ours, others = slots._shares_twice(*arguments), slots._shares(*arguments)
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_bfloat16():
    narrow = [x.astype(jnp.bfloat16) for x in arrays()]
    with jax.numpy_dtype_promotion("strict"):
        routed = slot_attention(*narrow, mask=jnp.ones(N, jnp.bfloat16))
    exact = slot_attention(*arrays())
    assert (routed.poses.dtype, routed.coupling.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(routed.poses.astype(jnp.float32), exact.poses, atol=0.05)
