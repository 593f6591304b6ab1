import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax.functional import exponential_squash, mask_poses, normalize, safe_norm, squash, to_unit

LENGTHS = [safe_norm, squash, exponential_squash]
RNG = np.random.default_rng(0)
DIRECTIONS = RNG.normal(size=(5, 8)) / 4


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


@pytest.mark.parametrize("function", LENGTHS)
def test_vectors_of_zeros(function):
    value, pullback = jax.vjp(function, jnp.zeros((3, 8)))
    (gradient,) = pullback(jnp.ones_like(value))
    assert not value.any()
    # Near 0 the exponential form is the identity, the others are flat there.
    np.testing.assert_array_equal(gradient, function is exponential_squash)


@pytest.mark.parametrize("function", LENGTHS)
def test_second_derivatives_at_zero_are_finite(function):
    slope = jax.grad(lambda x: jnp.sum(function(x) ** 2))
    x = jnp.array([[0.5, 0, 0], [0, 0, 0]])
    assert jnp.all(jnp.isfinite(jax.jvp(slope, (x,), (jnp.ones_like(x),))[1]))


def _exact(function, s):
    """The value at `s` in float64, without a square of it."""
    size = np.abs(s).max(axis=-1, keepdims=True)
    length = size * np.linalg.norm(s / size, axis=-1, keepdims=True)
    if function is safe_norm:
        return length[..., 0]
    shorter = length / (1 + length**2) if function is squash else -np.expm1(-length) / length
    return s * shorter


@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e19, 1e20, 1e30, 1e38])
@pytest.mark.parametrize("function", LENGTHS)
def test_lengths_of_all_sizes(function, scale):
    s = (scale * DIRECTIONS).astype(np.float32)
    exact = _exact(function, s.astype(np.float64))
    np.testing.assert_allclose(function(s), exact, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1.0, 1e10, 1e19, 1e20, 1e30])
def test_gradients_of_lengths_of_all_sizes(scale):
    s = scale * DIRECTIONS
    length = np.linalg.norm(s, axis=-1, keepdims=True)
    unit = s / length
    gradient = jax.vmap(jax.grad(safe_norm))(s.astype(np.float32))
    np.testing.assert_allclose(gradient, unit, rtol=1e-5)

    # Of both squashes: across the direction they divide by the length, along it they flatten out.
    for function, divisor, slope in (
        (squash, length + 1 / length, 2 * length / (1 + length**2) ** 2),
        (exponential_squash, length / -np.expm1(-length), np.exp(-length)),
    ):
        across = (np.eye(8) - unit[:, :, None] * unit[:, None, :]) / divisor[..., None]
        along = slope[..., None] * unit[:, :, None] * unit[:, None, :]
        jacobian = jax.vmap(jax.jacobian(function))(s.astype(np.float32))
        expected = across + along
        # Where it is that small, the squash itself has nothing left but 0.
        near = 2e-6 * np.abs(expected).max() + 1e-18
        np.testing.assert_allclose(jacobian, expected, rtol=0, atol=near)


def test_float64_has_its_own_ends():
    with jax.enable_x64(True):
        for scale in (1e-300, 1e-200, 1e200, 1e300):
            s = jnp.asarray(scale * DIRECTIONS)
            exact = _exact(safe_norm, np.asarray(s))
            np.testing.assert_allclose(safe_norm(s), exact, rtol=1e-14)
            assert np.isfinite(jax.grad(lambda s: squash(s).sum())(s)).all()


def test_ordinary_lengths_keep_their_bits():
    """Scaling by powers of two changes nothing."""
    s = RNG.normal(size=(1000, 16)).astype(np.float32)
    squared = jnp.sum(jnp.square(s), axis=-1, keepdims=True)
    length = jnp.sqrt(squared)
    np.testing.assert_array_equal(safe_norm(s, keepdims=True), length)
    np.testing.assert_array_equal(squash(s), s * (length / (1 + jnp.square(length))))


def test_narrow_types_are_computed_in_float32():
    s = jnp.asarray(RNG.normal(size=(100, 16)), jnp.bfloat16)
    narrow = squash(s)
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_array_equal(narrow, squash(s.astype(jnp.float32)).astype(jnp.bfloat16))


@pytest.mark.parametrize("function", [squash, exponential_squash])
def test_squash_gradient_matches_finite_differences(function):
    with jax.enable_x64(True):
        chex.assert_numerical_grads(function, (jnp.asarray(RNG.normal(size=8)),), order=1)


@pytest.mark.parametrize("function", LENGTHS)
def test_numpy_arrays_of_float64_are_as_jax_takes_them(function, recwarn):
    assert function(np.ones((2, 3))).dtype == jnp.float32
    assert not recwarn.list


@pytest.mark.parametrize("function", LENGTHS)
def test_what_has_no_length(function):
    """A broken network is not to look like one that sees nothing."""
    assert jnp.isnan(function(jnp.array([[jnp.nan, 1.0, 2.0]]))).all()
    with pytest.raises(TypeError, match="got int32: convert with astype"):
        function(jnp.array([3, 4]))
    with pytest.raises(TypeError, match="must be an array"):
        function([0.5, 0.5])


def test_mask_poses_keeps_only_the_chosen_class():
    poses = jnp.arange(1.0, 7.0).reshape(3, 2)
    np.testing.assert_array_equal(mask_poses(poses, jnp.array([0, 1, 0])), [0, 0, 3, 4, 0, 0])
    with pytest.raises(ValueError, match=r"got shape \(2,\); for class numbers .*one_hot"):
        mask_poses(jnp.ones((2, 3, 4)), jnp.array([0, 2]))
    with pytest.raises(TypeError, match=r"incompatible shapes for broadcasting"):
        mask_poses(jnp.ones((4, 3, 2)), jnp.ones((3, 3)))


def test_to_unit():
    np.testing.assert_allclose(to_unit(jnp.array([0, 51, 255], jnp.uint8)), [0, 0.2, 1])
    np.testing.assert_array_equal(to_unit(jnp.array([0.5])), [0.5])
    np.testing.assert_array_equal(to_unit(np.array([-2.5, 2.5])), [-2.5, 2.5])  # normalised
    with pytest.raises(ValueError, match=r"got floats up to 255\.0: divide by 255"):
        to_unit(np.array([0.0, 255.0]))
    with pytest.raises(ValueError, match=r"got int64: pass images.astype\(np.uint8\)"):
        to_unit(np.array([1], np.int64))


def test_normalize_takes_positive_deviations():
    with pytest.raises(ValueError, match="std positive; got"):
        normalize(jnp.ones((2, 3)), (0.5, 0.5, 0.5), (1.0, 0.0, 1.0))
