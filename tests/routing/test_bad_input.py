"""What procedures, votes, windows, blocks and schedules say of arguments that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.routing import (
    DenseVotes,
    LinearVotes,
    WindowVotes,
    attention_routing,
    blocked_vmap,
    choose_block_size,
    concurrent,
    coupling_entropy,
    dynamic_routing,
    em_routing,
    fixed_point,
    in_blocks,
    inverted_attention_routing,
    pose_patches,
    self_attention_routing,
    sequential,
    slot_attention,
    softmax_over_windows,
    uniform_routing,
)
from capsjax.routing._checks import check_broadcast

VOTES = jnp.ones((2, 6, 4, 3))
ONES, ZEROS = jnp.ones(6), jnp.zeros(4)
POSES, KERNEL = jnp.zeros((2, 5, 1, 3)), jnp.zeros((5, 3, 4, 2))
GRID = jnp.zeros((4, 4, 3, 2, 2))


def test_lengths_that_rounding_lifts_above_one_are_probabilities():
    routed = em_routing(VOTES, ONES * (1 + jnp.finfo(jnp.float32).eps), ZEROS, ZEROS)
    assert jnp.all(jnp.isfinite(routed.activations))


def em(*arguments, **options):
    given = (VOTES, ONES, ZEROS, ZEROS)
    return lambda: em_routing(*arguments, *given[len(arguments) :], **options)


def dynamic(**options):
    return lambda: dynamic_routing(VOTES, **options)


def inverted(votes, *poses):
    return lambda: inverted_attention_routing(votes, *poses, normalize=lambda s: s)


def slots(**changed):
    given = {"inputs": (5, 3), "queries": (2, 4), "key_kernel": (3, 4), "value_kernel": (3, 7)}
    return lambda: slot_attention(**{name: jnp.ones(x) for name, x in given.items()} | changed)


def limit(procedure, *arguments, **options):
    return lambda: fixed_point(procedure, VOTES, *arguments, **options)


WRONG = [
    (em(VOTES, 2 * ONES), r"activations must lie in \[0, 1\]"),
    (em(VOTES, jnp.ones(5)), "activations must broadcast"),
    (em(VOTES, ONES, jnp.zeros(3)), "beta_use must broadcast"),
    (em(VOTES, ONES, ZEROS, jnp.zeros(4, int)), "beta_activate must have a floating dtype"),
    (em(coupling=jnp.ones((4, 6))), "coupling must broadcast"),
    (em(variance_floor=0.0), "variance_floor must be positive"),
    (em(variance_floor=jnp.ones(3)), "variance_floor must be one number"),
    (em(inverse_temperature=jnp.ones(4)), "inverse_temperature must be one number"),
    (em(num_iterations=2.0), "num_iterations must be a Python int"),
    (dynamic(num_iterations=0), "num_iterations must be at least 1, got 0"),
    (dynamic(update_rate=0), r"update_rate .* \(0, 1\], got 0"),
    (dynamic(update_rate=jnp.ones(3)), r"update_rate must be one number .* got shape \(3,\)"),
    (dynamic(update_rate="0.5"), "update_rate must be a number, got"),
    (dynamic(bias=jnp.zeros((3, 3))), "bias must broadcast"),
    (dynamic(logits=jnp.zeros((4, 5))), "logits must broadcast"),
    (dynamic(logits=[0.5, 0.5]), "logits must be an array, got list"),
    (lambda: dynamic_routing([0.5, 0.5]), "votes must be an array"),
    (lambda: dynamic_routing(VOTES[:, :0]), r"none of length zero; .* \(2, 0, 4, 3\)"),
    (lambda: uniform_routing(VOTES[..., :0]), r"none of length zero; .* \(2, 6, 4, 0\)"),
    (inverted(VOTES[:, :, :0]), r"none of length zero; .* \(2, 6, 0, 3\)"),
    (em(VOTES, [0.5, 0.5]), "activations must be an array, got list"),
    (lambda: LinearVotes(POSES, KERNEL).combine(jnp.ones((5, 4))), "must share batch axes"),
    (inverted(VOTES, jnp.ones((2, 3, 4))), r"poses must broadcast .* J, D\] = \(2, 4, 3\)"),
    (inverted(jnp.ones((6, 4, 3), jnp.int32)), "votes must have a floating dtype, got int"),
    (lambda: self_attention_routing(VOTES, jnp.ones((4, 6))), r"prior must broadcast .* I, J\] ="),
    (slots(inputs=jnp.ones((5, 2))), "the axis D of key_kernel must have length 2, got"),
    (slots(inputs=jnp.ones(3)), r"inputs must have the axes N, D, got \(3,\)"),
    (slots(inputs=jnp.ones((0, 3))), "the axis N of inputs must have length 1 or more, got"),
    (slots(queries=jnp.ones((0, 4))), "the axis J of queries must have length 1 or more, got"),
    (slots(key_kernel=jnp.ones((3, 5))), "the axis K of key_kernel must have length 4, got"),
    (slots(value_kernel=jnp.ones((4, 7))), "the axis D of value_kernel must have length 3, got"),
    (slots(value_kernel=jnp.ones((1, 3, 7))), "value_kernel must have the axes D, V, got"),
    (slots(queries=jnp.ones((2, 4), int)), "queries must have a floating dtype, got int"),
    (slots(mask=jnp.ones(4)), r"mask must broadcast to \[\.\.\., N\] = \(5,\)"),
    (slots(mask=jnp.full(5, 2.0)), r"mask must lie in \[0, 1\]"),
    (slots(scale=jnp.ones(4)), "scale must be one number"),
    (
        lambda: attention_routing(jnp.ones((4, 3)), jnp.ones((4, 4, 3))),
        r"kernel \[D, N, N\], got \(4, 3\) and \(4, 4, 3\)",
    ),
    (lambda: attention_routing(jnp.ones(3), jnp.ones((3, 1, 1))), "transformed must be"),
    (lambda: coupling_entropy([0.5, 0.5]), "coupling must be an array, got list"),
    (lambda: LinearVotes(POSES, KERNEL[:3]), r"kernel \[I or 1, X, J, Y\] .* \(3, 3, 4, 2\)\.$"),
    (lambda: LinearVotes(POSES, KERNEL[:, :2]), r"got \(2, 5, 1, 3\) and \(5, 2, 4, 2\)"),
    (lambda: LinearVotes(POSES, KERNEL[0]), r"got \(2, 5, 1, 3\) and \(3, 4, 2\)"),
    (lambda: LinearVotes(POSES[:, :, 0], KERNEL), r"got \(2, 5, 3\) .*poses\[\.\.\., None, :\]"),
    (lambda: LinearVotes(POSES, KERNEL.astype(int)), "kernel must have a floating dtype, got int"),
    (lambda: LinearVotes([1.0], KERNEL), "poses must be an array, got list"),
    (lambda: DenseVotes(jnp.zeros((3, 4))), r"\[\.\.\., I, J, D\]"),
    (lambda: WindowVotes(GRID, jnp.ones((1, 2, 4, 3)), 3), "each of the 27 children of a window"),
    (lambda: pose_patches(GRID, 5), "window must not exceed the grid's extent 4, got 5"),
    (lambda: pose_patches(GRID, 3, padding="FULL"), '"SAME" or "VALID", got \'FULL\''),
    (lambda: pose_patches(GRID, 3, stride=0), "stride must be at least 1"),
    (lambda: pose_patches(GRID[0], 3), "poses must have axes"),
    (lambda: softmax_over_windows(jnp.zeros((2, 3, 27, 4)), (4, 4), 3), "logits must be"),
    (lambda: blocked_vmap(jnp.sin, 0), "block_size must be at least 1, got 0"),
    (lambda: blocked_vmap(jnp.add, 2)(jnp.ones(3), jnp.ones(4)), "one leading axis"),
    (lambda: blocked_vmap(jnp.add, 2)(jnp.ones(3), jnp.float32(1)), "one leading axis"),
    (lambda: in_blocks(jnp.sum, jnp.ones((5, 3)), 2), r"must return arrays \[n, …\] for a batch"),
    (lambda: in_blocks(jnp.sin, jnp.ones(3), 0), "block_size must be at least 1, got 0"),
    (lambda: choose_block_size(1, budget=0), "budget must be at least 1"),
    (lambda: choose_block_size(1, shared_bytes=-1), "shared_bytes must be at least 0, got -1"),
    (lambda: sequential([], VOTES, num_iterations=1), "at least one layer"),
    (lambda: concurrent([max], VOTES, num_iterations=0), "num_iterations must be at least 1"),
    (limit(dynamic_routing), "procedure must be"),
    (limit(em_routing, ONES, ZEROS, ZEROS), "inverse_temperature"),
    (limit(inverted_attention_routing, tolerance=0), "tolerance must be positive"),
    (limit(inverted_attention_routing, max_iterations=0), "max_iterations must be at least 1"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_values_are_not_known_inside_jit():
    jax.eval_shape(em_routing, VOTES, 2 * ONES, ZEROS, ZEROS)
    with pytest.raises(ValueError, match="update_rate must be one number"):
        jax.eval_shape(lambda rate: dynamic_routing(VOTES, update_rate=rate), jnp.ones(3))


def test_entropy():
    coupling = jnp.array([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(coupling_entropy(coupling), [np.log(4), 0], atol=1e-6)
    # Of a softmax that has decided: what is 0 has gradient 0, not NaN.
    gradient = jax.grad(lambda b: coupling_entropy(jax.nn.softmax(b)[None]).sum())
    np.testing.assert_array_equal(gradient(jnp.array([0.0, 200.0, 0.0], jnp.float32)), 0)
    assert jnp.isnan(coupling_entropy(jnp.array([[jnp.nan, 0.0]]))).all()


def test_lengths_may_be_symbolic():
    """As in a program exported for batches of any length."""
    shape = (*jax.export.symbolic_shape("b"), 3, 4)
    check_broadcast("bias", jnp.zeros((3, 4)), shape, "[..., J, D]")
    with pytest.raises(ValueError, match="bias must broadcast to"):
        check_broadcast("bias", jnp.zeros(7), shape, "[..., J, D]")
