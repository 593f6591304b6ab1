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
    return layer


# Of savi/modules/attention.py, as Linen names them: a LayerNorm where it is made, not called.
PUBLISHED = {
    **{
        f"general_dense_{letter}_0/kernel": (size, 1, S)
        for letter, size in zip("qkv", (S, D, D), strict=True)
    },
    **{f"LayerNorm_0/{name}": (S,) for name in ("scale", "bias")},
    **{f"LayerNorm_1/{name}": (D,) for name in ("scale", "bias")},
    **{f"GRU_0/GRUCell_0/{name}/kernel": (S, S) for name in ("ir", "iz", "in", "hr", "hz", "hn")},
    **{f"GRU_0/GRUCell_0/{name}/bias": (S,) for name in ("ir", "iz", "in", "hn")},
    **{f"MLP_0/LayerNorm_0/{name}": (S,) for name in ("scale", "bias")},
    "MLP_0/dense_mlp_0/kernel": (S, HIDDEN),
    "MLP_0/dense_mlp_0/bias": (HIDDEN,),
    "MLP_0/dense_mlp_1/kernel": (HIDDEN, S),
    "MLP_0/dense_mlp_1/bias": (S,),
}


def load(layer, p):
    """Gives the layer the published parameters, by the table of its docstring."""
    for letter, name in zip("qkv", ("query", "key", "value"), strict=True):
        getattr(layer, name)[...] = p[f"general_dense_{letter}_0/kernel"][:, 0]
    gru, mlp, no_bias = "GRU_0/GRUCell_0", "MLP_0", jnp.zeros(S)
    for module, names in ((layer.gru.dense_i, "ir iz in"), (layer.gru.dense_h, "hr hz hn")):
        for what, axis in (("kernel", 1), ("bias", 0)):
            parts = [p.get(f"{gru}/{name}/{what}", no_bias) for name in names.split()]
            getattr(module, what)[...] = jnp.concatenate(parts, axis)
    rest = {
        "LayerNorm_0": layer.norm_slots,
        "LayerNorm_1": layer.norm_inputs,
        f"{mlp}/LayerNorm_0": layer.norm_mlp,
        f"{mlp}/dense_mlp_0": layer.hidden,
        f"{mlp}/dense_mlp_1": layer.out,
    }
    for path, module in rest.items():
        for what in ("scale", "kernel", "bias"):
            if f"{path}/{what}" in p:
                getattr(module, what)[...] = p[f"{path}/{what}"]


def plain(p, slots, inputs, iterations):
    """The published formulas: keys and values are formed, and their shares kept."""

    def norm(x, at):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x * p[f"{at}/scale"] + p[f"{at}/bias"]

    def dense(x, at):
        return x @ p[f"{at}/kernel"] + p.get(f"{at}/bias", 0)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    inputs, gru = norm(inputs, "LayerNorm_1"), "GRU_0/GRUCell_0"
    key, value = (inputs @ p[f"general_dense_{name}_0/kernel"][:, 0] for name in "kv")
    for _ in range(iterations):
        query = norm(slots, "LayerNorm_0") @ p["general_dense_q_0/kernel"][:, 0]
        logits = query / np.sqrt(S) @ key.T
        attention = np.exp(logits) / np.exp(logits).sum(0)
        updates = attention / (attention.sum(-1, keepdims=True) + 1e-8) @ value
        reset = sigmoid(dense(updates, f"{gru}/ir") + dense(slots, f"{gru}/hr"))
        keep = sigmoid(dense(updates, f"{gru}/iz") + dense(slots, f"{gru}/hz"))
        new = np.tanh(dense(updates, f"{gru}/in") + reset * dense(slots, f"{gru}/hn"))
        slots = (1 - keep) * new + keep * slots
        hidden = np.maximum(dense(norm(slots, "MLP_0/LayerNorm_0"), "MLP_0/dense_mlp_0"), 0)
        slots = slots + dense(hidden, "MLP_0/dense_mlp_1")
    return slots, attention.T


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_published_formulas_with_the_published_parameters(iterations):
    layer, rng = build(num_iterations=iterations), np.random.default_rng(0)
    p = {name: rng.normal(scale=0.5, size=shape) for name, shape in PUBLISHED.items()}
    load(layer, p)
    slots = jax.random.normal(jax.random.key(2), (2, J, S))
    routed = layer(INPUTS, slots)
    for n in range(2):
        expected = plain(p, *(np.asarray(x[n], np.float64) for x in (slots, INPUTS)), iterations)
        np.testing.assert_allclose(routed.poses[n], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(routed.coupling[n], expected[1], rtol=1e-5, atol=1e-5)


def test_iterations_share_the_inputs_that_the_backward_pass_keeps():
    def held(iterations):
        layer = build(num_iterations=iterations)
        _, pull = jax.vjp(lambda inputs: layer(inputs).poses, INPUTS)
        return [x.shape for x in jax.tree.leaves(pull) if N in x.shape]

    assert held(5) == held(2)


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
