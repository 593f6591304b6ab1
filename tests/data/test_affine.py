import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
import scipy.stats

from capsjax.data.affine import (
    AffineRanges,
    affine_matrix,
    ink_translations,
    random_affine,
    resample,
    transform,
)

CANVAS = (40, 40)


@pytest.fixture(scope="module")
def blob():
    """28×28 with irregular ink within 9 pixels of (14, 12): about a digit's extent."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:28, :28]
    ink = rng.uniform(0.3, 1, (28, 28)) * ((rows - 14) ** 2 + (columns - 12) ** 2 <= 81)
    return jnp.asarray(ink[..., None], jnp.float32)


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_scipy(seed):
    rng = np.random.default_rng(seed)
    image = rng.uniform(0, 1, (28, 23, 2)).astype(np.float32)
    matrix = (np.eye(2) + rng.uniform(-0.5, 0.5, (2, 2))).astype(np.float32)
    offset = rng.uniform(-8, 8, 2).astype(np.float32)
    ours = resample(image, jnp.asarray(matrix), jnp.asarray(offset), (40, 31))
    for channel in range(2):
        expected = scipy.ndimage.affine_transform(
            image[..., channel],
            matrix,
            offset,
            output_shape=(40, 31),
            order=1,
            mode="grid-constant",
        )
        np.testing.assert_allclose(ours[..., channel], expected, atol=1e-4)


def test_the_identity_puts_the_image_in_the_middle():
    image = jax.random.uniform(jax.random.key(0), (6, 4, 1))
    moved = transform(image, jnp.eye(2), jnp.zeros(2), (10, 8))
    np.testing.assert_array_equal(moved, jnp.pad(image, ((2, 2), (2, 2), (0, 0))))


def test_narrow_types_have_all_rows():
    image = jnp.linspace(0, 1, 300, dtype=jnp.bfloat16)[:, None, None]
    np.testing.assert_array_equal(resample(image, jnp.eye(2), jnp.zeros(2), (300, 1)), image)


def test_rotation_is_counter_clockwise():
    image = jax.random.uniform(jax.random.key(0), (7, 7, 1))
    turned = transform(image, affine_matrix(rotation=90.0), jnp.zeros(2), (7, 7))
    np.testing.assert_allclose(turned, jnp.rot90(image), atol=1e-5)


@pytest.mark.parametrize(
    ("matrix", "translation", "expected"),
    [
        (affine_matrix(), (2, -3), (6, 3)),
        (affine_matrix(shear=1.0), (0, 0), (4, 4)),  # two rows up: two columns to the left
        (affine_matrix(scale=(2.0, 1.0)), (0, 0), (2, 6)),
        (affine_matrix(scale=(1.0, 0.5)), (1, 0), (5, 6)),
        # scaled to (-4, 0), slanted to (-4, -4), turned to (4, -4)
        (affine_matrix(90.0, 1.0, (2.0, 1.0)), (0, 0), (10, 2)),
    ],
)
def test_where_a_point_goes(matrix, translation, expected):
    """The point two rows above the centre of 13×13."""
    image = jnp.zeros((13, 13, 1)).at[4, 6].set(1)
    moved = transform(image, matrix, jnp.array(translation, jnp.float32), (13, 13))
    assert np.unravel_index(np.argmax(moved), (13, 13)) == expected


def draw(image, count, ranges, size=CANVAS):
    keys = jax.random.split(jax.random.key(0), count)
    return jax.jit(jax.vmap(lambda key: random_affine(key, image, size, ranges)))(keys)


def test_parameters_are_uniform(blob):
    ranges = AffineRanges()
    drawn = draw(blob, 4000, ranges)
    for values, low, high in [
        (drawn.rotation, -20, 20),
        (drawn.shear, -0.2, 0.2),
        (drawn.scale[:, 0], 0.8, 1.2),
        (drawn.scale[:, 1], 0.8, 1.2),
    ]:
        assert low <= values.min() < values.max() <= high
        assert scipy.stats.kstest(values, "uniform", (low, high - low)).pvalue > 1e-3
    # Translations: uniform in what the ink allows, which differs from draw to draw.
    low, high = jax.vmap(lambda p: ink_translations(blob, p.matrix, CANVAS))(drawn)
    relative = (drawn.translation - low) / (high - low)
    assert relative.min() > -1e-4
    for axis in range(2):
        assert scipy.stats.kstest(relative[:, axis], "uniform").pvalue > 1e-3
    # Independent of each other.
    values = np.stack([drawn.rotation, drawn.shear, *drawn.scale.T, *relative.T])
    assert np.abs(np.corrcoef(values) - np.eye(6)).max() < 0.06


def test_free_translations_are_uniform(blob):
    ranges = AffineRanges(max_shear=1.0, max_translation=8.0, keep_ink=False)  # Gu et al. 2021
    drawn = draw(blob, 4000, ranges)
    for axis in range(2):
        values = drawn.translation[:, axis]
        assert scipy.stats.kstest(values, "uniform", (-8, 16)).pvalue > 1e-3
    assert scipy.stats.kstest(drawn.shear, "uniform", (-1, 2)).pvalue > 1e-3


def lost_ink(images, drawn):
    """What is on a canvas of 120×120 and not on its 40×40 in the middle, at most."""

    def lost(image, p):
        small = transform(image, p.matrix, p.translation, CANVAS)
        large = transform(image, p.matrix, p.translation, (120, 120))
        inside = large[40:80, 40:80]
        return jnp.sum(large) - jnp.sum(inside), jnp.max(jnp.abs(inside - small))

    lost, differences = jax.jit(jax.vmap(lost))(images, drawn)
    assert differences.max() < 1e-3
    return float(np.max(lost))


def test_no_ink_is_lost(blob):
    drawn = draw(blob, 500, AffineRanges())
    assert lost_ink(jnp.broadcast_to(blob, (500, 28, 28, 1)), drawn) < 1e-3
    # And the canvas is used to its edges.
    images = jax.vmap(lambda p: transform(blob, p.matrix, p.translation, CANVAS))(drawn)
    ink = np.asarray(images[..., 0].max(axis=0) > 0)
    assert all(edge.any() for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]))


def test_what_does_not_fit_is_put_in_the_middle():
    image = jnp.ones((28, 28, 1))
    matrix = affine_matrix(shear=1.0)
    low, high = ink_translations(image, matrix, CANVAS)
    assert low[0] < high[0]  # 28 rows fit
    assert low[1] == high[1] == 0  # 56 columns do not


def test_a_blank_image_may_go_anywhere():
    low, high = ink_translations(jnp.zeros((8, 8, 1)), jnp.eye(2), CANVAS)
    np.testing.assert_array_equal(low, -high)
    assert np.all(np.isfinite(low))
