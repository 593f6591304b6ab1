"""EM, attention, inverted attention and the diagnostics say what is wrong with their arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.routing import (
    attention_routing,
    coupling_entropy,
    dynamic_routing,
    em_routing,
    inverted_attention_routing,
    self_attention_routing,
    slot_attention,
)
from capsjax.routing._checks import check_broadcast

VOTES = jnp.ones((2, 6, 4, 3))
ONES, ZEROS = jnp.ones(6), jnp.zeros(4)


def test_em():
    with pytest.raises(ValueError, match=r"activations must lie in \[0, 1\]"):
        em_routing(VOTES, 2 * ONES, ZEROS, ZEROS)
    with pytest.raises(ValueError, match="activations must broadcast"):
        em_routing(VOTES, jnp.ones(5), ZEROS, ZEROS)
    with pytest.raises(ValueError, match="beta_use must broadcast"):
        em_routing(VOTES, ONES, jnp.zeros(3), ZEROS)
    with pytest.raises(TypeError, match="beta_activate must have a floating dtype"):
        em_routing(VOTES, ONES, ZEROS, jnp.zeros(4, int))
    with pytest.raises(ValueError, match="coupling must broadcast"):
        em_routing(VOTES, ONES, ZEROS, ZEROS, coupling=jnp.ones((4, 6)))
    with pytest.raises(ValueError, match="variance_floor must be positive"):
        em_routing(VOTES, ONES, ZEROS, ZEROS, variance_floor=0.0)
    with pytest.raises(TypeError, match="num_iterations must be a Python int"):
        em_routing(VOTES, ONES, ZEROS, ZEROS, num_iterations=2.0)
    # Values are not known inside jit, and so not checked.
    jax.eval_shape(em_routing, VOTES, 2 * ONES, ZEROS, ZEROS)


def test_inverted_attention():
    with pytest.raises(ValueError, match=r"poses must broadcast to \[\.\.\., J, D\] = \(2, 4, 3\)"):
        inverted_attention_routing(VOTES, jnp.ones((2, 3, 4)), normalize=lambda s: s)
    with pytest.raises(TypeError, match="votes must have a floating dtype, got int"):
        inverted_attention_routing(jnp.ones((6, 4, 3), jnp.int32), normalize=lambda s: s)


def test_self_attention():
    with pytest.raises(ValueError, match=r"prior must broadcast to \[\.\.\., I, J\] = \(2, 6, 4\)"):
        self_attention_routing(VOTES, jnp.ones((4, 6)))
    with pytest.raises(TypeError, match="prior must have a floating dtype, got int"):
        self_attention_routing(VOTES, jnp.ones((6, 4), jnp.int32))


@pytest.mark.parametrize(
    ("argument", "array", "message"),
    [
        ("inputs", jnp.ones((5, 2)), r"must share D and K, got .*\(5, 2\)"),
        ("inputs", jnp.ones(3), "must share D and K"),
        ("key_kernel", jnp.ones((3, 5)), "must share D and K"),
        ("value_kernel", jnp.ones((4, 7)), "must share D and K"),
        ("value_kernel", jnp.ones((1, 3, 7)), "must share D and K"),
        ("mask", jnp.ones(4), r"mask must broadcast to \[\.\.\., N\] = \(5,\)"),
        ("mask", jnp.full(5, 2.0), r"mask must lie in \[0, 1\]"),
        ("scale", jnp.ones(4), "scale must be one number"),
    ],
)
def test_slot_attention(argument, array, message):
    arguments = {
        "inputs": jnp.ones((5, 3)),
        "queries": jnp.ones((2, 4)),
        "key_kernel": jnp.ones((3, 4)),
        "value_kernel": jnp.ones((3, 7)),
    }
    with pytest.raises(ValueError, match=message):
        slot_attention(**arguments | {argument: array})
    with pytest.raises(TypeError, match=r"queries must have a floating dtype, got int"):
        slot_attention(**arguments | {"queries": jnp.ones((2, 4), jnp.int32)})


@pytest.mark.parametrize("jitted", [False, True])
def test_rates_are_one_number(jitted):
    def route(rate):
        return dynamic_routing(VOTES, update_rate=rate).poses

    with pytest.raises(ValueError, match=r"update_rate must be one number .* got shape \(3,\)"):
        (jax.jit(route) if jitted else route)(jnp.ones(3))
    for wrong in ("0.5", None):
        with pytest.raises(TypeError, match="update_rate must be a number, got"):
            route(wrong)


def test_attention():
    with pytest.raises(ValueError, match=r"kernel \[D, N, N\], got \(4, 3\) and \(4, 4, 3\)"):
        attention_routing(jnp.ones((4, 3)), jnp.ones((4, 4, 3)))
    with pytest.raises(ValueError, match="transformed must be"):
        attention_routing(jnp.ones(3), jnp.ones((3, 1, 1)))
    with pytest.raises(TypeError, match="kernel must have a floating dtype"):
        attention_routing(jnp.ones((4, 3)), jnp.ones((3, 4, 4), bool))


def test_entropy():
    coupling = jnp.array([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(coupling_entropy(coupling), [np.log(4), 0], atol=1e-6)
    # Of a softmax that has decided: what is 0 has gradient 0, not NaN.
    gradient = jax.grad(lambda b: coupling_entropy(jax.nn.softmax(b)[None]).sum())
    np.testing.assert_array_equal(gradient(jnp.array([0.0, 200.0, 0.0], jnp.float32)), 0)
    assert jnp.isnan(coupling_entropy(jnp.array([[jnp.nan, 0.0]]))).all()
    with pytest.raises(TypeError, match="coupling must be an array, got list"):
        coupling_entropy([0.5, 0.5])


def test_lengths_may_be_symbolic():
    """As in a program exported for batches of any length."""
    shape = (*jax.export.symbolic_shape("b"), 3, 4)
    check_broadcast("bias", jnp.zeros((3, 4)), shape, "[..., J, D]")
    with pytest.raises(ValueError, match="bias must broadcast to"):
        check_broadcast("bias", jnp.zeros(7), shape, "[..., J, D]")
