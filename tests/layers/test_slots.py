"""Slot attention with its GRU and MLP."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from capsjax.layers import SlotAttention

N, D, J, S, HIDDEN = 7, 5, 3, 4, 6
INPUTS = jax.random.normal(jax.random.key(0), (2, N, D))


def build(**options):
    layer = SlotAttention(D, J, S, HIDDEN, rngs=nnx.Rngs(0), **options)
    keys = iter(jax.random.split(jax.random.key(1), 100))

    def move(x):
        """So that scales and biases are not all 1 and 0."""
        return x + 0.3 * jax.random.normal(next(keys), x.shape)

    nnx.update(layer, jax.tree.map(move, nnx.state(layer)))
    bias = layer.gru.dense_h.bias
    bias[...] = bias[...].at[: 2 * S].set(0)
    return layer


def linen_parameters(layer):
    """The layer's parameters under the names of Slot Attention for Video."""

    def own(module):
        return nnx.to_pure_dict(nnx.state(module))

    def gates(module, names):
        kernels, biases = (jnp.split(x[...], 3, axis=-1) for x in (module.kernel, module.bias))
        return {
            name: {"kernel": kernel, "bias": bias}
            for name, kernel, bias in zip(names, kernels, biases, strict=True)
        }

    tree = {
        "LayerNorm_0": own(layer.norm_inputs),
        "LayerNorm_1": own(layer.norm_slots),
        "GRUCell_0": gates(layer.gru.dense_i, ("ir", "iz", "in"))
        | gates(layer.gru.dense_h, ("hr", "hz", "hn")),
        "MLP_0": {
            "LayerNorm_0": own(layer.norm_mlp),
            "dense_mlp_0": own(layer.hidden),
            "dense_mlp_1": own(layer.out),
        },
    }
    for letter, name in (("q", "query"), ("k", "key"), ("v", "value")):
        tree[f"general_dense_{letter}_0"] = {"kernel": getattr(layer, name)[...][:, None]}
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def plain(p, slots, inputs, iterations):
    """The published formulas: keys and values are formed, and their shares kept."""

    def norm(x, p):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]

    def dense(x, p):
        return x @ p["kernel"] + p["bias"]

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    inputs = norm(inputs, p["LayerNorm_0"])
    key, value = (inputs @ p[f"general_dense_{name}_0"]["kernel"][:, 0] for name in "kv")
    for _ in range(iterations):
        query = norm(slots, p["LayerNorm_1"]) @ p["general_dense_q_0"]["kernel"][:, 0]
        logits = query / np.sqrt(S) @ key.T
        attention = np.exp(logits) / np.exp(logits).sum(0)
        updates = attention / (attention.sum(-1, keepdims=True) + 1e-8) @ value
        g = p["GRUCell_0"]
        reset = sigmoid(dense(updates, g["ir"]) + slots @ g["hr"]["kernel"])
        keep = sigmoid(dense(updates, g["iz"]) + slots @ g["hz"]["kernel"])
        new = np.tanh(dense(updates, g["in"]) + reset * dense(slots, g["hn"]))
        slots = (1 - keep) * new + keep * slots
        m = p["MLP_0"]
        hidden = np.maximum(dense(norm(slots, m["LayerNorm_0"]), m["dense_mlp_0"]), 0)
        slots = slots + dense(hidden, m["dense_mlp_1"])
    return slots, attention.T


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_published_formulas(iterations):
    layer = build(num_iterations=iterations)
    slots = jax.random.normal(jax.random.key(2), (2, J, S))
    routed = layer(INPUTS, slots)
    p = linen_parameters(layer)
    for n in range(2):
        expected = plain(p, *(np.asarray(x[n], np.float64) for x in (slots, INPUTS)), iterations)
        np.testing.assert_allclose(routed.poses[n], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(routed.coupling[n], expected[1], rtol=1e-5, atol=1e-5)


def test_slots_are_as_wide_as_the_inputs_and_parameters():
    layer, half = build(), jnp.bfloat16
    graphdef, state = nnx.split(layer)
    narrow = nnx.merge(graphdef, jax.tree.map(lambda x: x.astype(half), state))
    assert narrow(INPUTS).poses.dtype == jnp.float32
    assert narrow(INPUTS.astype(half)).poses.dtype == half
    assert layer(INPUTS, jnp.zeros((2, J, S), half)).poses.dtype == jnp.float32


def test_drawn_slots():
    layer = build()
    keys = jax.random.split(jax.random.key(0))
    slots = layer.first_slots(2, keys)
    assert not np.allclose(slots[0], slots[1])
    chex.assert_trees_all_close(layer(INPUTS, keys=keys), layer(INPUTS, slots), rtol=1e-6)
    with pytest.raises(ValueError, match=r"keys must be 2 of jax.random.split, got \(1,\)"):
        layer(INPUTS, keys=keys[:1])  # which would share one draw
    same = layer.first_slots(2)
    np.testing.assert_array_equal(same[0], same[1])
    assert not np.allclose(same[0, 0], same[0, 1])
    many = layer.first_slots(4000, jax.random.split(jax.random.key(3), 4000)).reshape(-1, S)
    np.testing.assert_allclose(many.mean(0), layer.mean[0], atol=0.1)
    np.testing.assert_allclose(many.std(0), np.exp(layer.log_std[0]), rtol=0.05)


def test_implicit_is_one_differentiated_iteration():
    slots = jax.random.normal(jax.random.key(2), (2, J, S))
    once, implicit = build(num_iterations=1), build(num_iterations=3, implicit=True)
    still = build(num_iterations=3)(INPUTS, slots).poses

    def loss(layer, inputs, slots):
        return jnp.sum(jnp.sin(layer(inputs, slots).poses))

    expected = nnx.grad(loss, argnums=(0, 1))(once, INPUTS, still)
    ours = nnx.grad(loss, argnums=(0, 1))(implicit, INPUTS, slots)
    chex.assert_trees_all_close(
        jax.tree.leaves(ours), jax.tree.leaves(expected), rtol=1e-4, atol=3e-5
    )


def test_every_parameter_is_trained():
    grads = nnx.grad(lambda layer: jnp.sum(jnp.sin(layer(INPUTS).poses)))(build())
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        assert np.any(grad), jax.tree_util.keystr(path)


def test_masked_inputs_are_as_if_they_were_not_there():
    layer = build()
    masked = layer(INPUTS, mask=jnp.arange(N) < 4 * jnp.ones((2, 1)))
    np.testing.assert_allclose(masked.poses, layer(INPUTS[:, :4]).poses, rtol=1e-5, atol=1e-5)
