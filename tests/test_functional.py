import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.functional import exponential_squash, mask_poses, safe_norm, squash, to_unit


def test_squash_of_a_known_vector():
    # |s| = 5: 25/26 · (0.6, 0.8)
    np.testing.assert_allclose(squash(jnp.array([3.0, 4.0])), [15 / 26, 20 / 26], rtol=1e-6)


def test_exponential_squash_of_known_vectors():
    # |s| = 5, and lengths on both sides of the series near 0
    expected = (1 - np.exp(-5)) * np.array([0.6, 0.8])
    np.testing.assert_allclose(exponential_squash(jnp.array([3.0, 4.0])), expected, rtol=1e-6)
    lengths = np.geomspace(1e-6, 1e-2, 50)
    squashed = exponential_squash(jnp.asarray(lengths[:, None], jnp.float32))
    np.testing.assert_allclose(squashed[:, 0], -np.expm1(-lengths), rtol=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-10, 1.0, 1e4])
@pytest.mark.parametrize("function", [squash, exponential_squash, safe_norm])
def test_value_and_gradient_are_finite(function, scale):
    s = jnp.full((3, 8), scale)
    value, pullback = jax.vjp(function, s)
    (gradient,) = pullback(jnp.ones_like(value))
    chex.assert_tree_all_finite((value, gradient))
    if scale == 0:
        assert not value.any()
        # Near 0 the exponential form is the identity, the others are flat there.
        np.testing.assert_array_equal(gradient, function is exponential_squash)


@pytest.mark.parametrize("function", [squash, exponential_squash])
def test_squash_gradient_matches_finite_differences(function):
    with jax.enable_x64(True):
        s = jnp.asarray(np.random.default_rng(0).normal(size=8))
        chex.assert_numerical_grads(function, (s,), order=1)


def test_narrow_types_are_computed_in_float32():
    s = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    narrow = squash(jnp.asarray(s, jnp.bfloat16))
    assert narrow.dtype == jnp.bfloat16
    exact = squash(jnp.asarray(s, jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_array_equal(narrow, exact.astype(jnp.bfloat16))


def test_mask_poses_keeps_only_the_chosen_class():
    poses = jnp.arange(1.0, 7.0).reshape(3, 2)
    np.testing.assert_array_equal(mask_poses(poses, jnp.array([0, 1, 0])), [0, 0, 3, 4, 0, 0])


def test_class_numbers_are_no_mask():
    with pytest.raises(ValueError, match=r"got shape \(2,\); for class numbers .*one_hot"):
        mask_poses(jnp.ones((2, 3, 4)), jnp.array([0, 2]))


def test_a_mask_of_another_batch_is_refused():
    with pytest.raises(ValueError, match=r"axes of poses \(4, 3, 2\) but for the last, got"):
        mask_poses(jnp.ones((4, 3, 2)), jnp.ones((3, 3)))


def test_to_unit():
    np.testing.assert_allclose(to_unit(jnp.array([0, 51, 255], jnp.uint8)), [0, 0.2, 1])
    np.testing.assert_array_equal(to_unit(jnp.array([0.5])), [0.5])
    np.testing.assert_array_equal(to_unit(np.array([-2.5, 2.5])), [-2.5, 2.5])  # normalised
    with pytest.raises(ValueError, match=r"got floats up to 255\.0: divide by 255"):
        to_unit(np.array([0.0, 255.0]))
    with pytest.raises(ValueError, match="uint8"):
        to_unit(jnp.array([1], jnp.int32))


@pytest.mark.parametrize("function", [squash, exponential_squash, safe_norm])
def test_whole_numbers_have_no_length(function):
    with pytest.raises(TypeError, match="got int32: convert with astype"):
        function(jnp.array([3, 4]))


@pytest.mark.parametrize("function", [squash, exponential_squash, safe_norm])
def test_a_nan_stays_one(function):
    """A broken network is not to look like one that sees nothing."""
    assert jnp.isnan(function(jnp.array([[jnp.nan, 1.0, 2.0]]))).all()
