"""Calls of the library with numbers at the ends of their types, empty axes and wrong types."""

import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from capsjax import functional, layers, losses, models, routing
from capsjax.functional import exponential_squash, safe_norm, squash

RNG = np.random.default_rng(0)
DIRECTIONS = RNG.normal(size=(5, 8)) / 4
VOTES = jnp.asarray(RNG.normal(size=(6, 4, 3)), jnp.float32)


def _exact(function, s):
    """The value at `s` in float64, without a square of it."""
    size = np.abs(s).max(axis=-1, keepdims=True)
    length = size * np.linalg.norm(s / size, axis=-1, keepdims=True)
    if function is safe_norm:
        return length[..., 0]
    shorter = length / (1 + length**2) if function is squash else -np.expm1(-length) / length
    return s * shorter


@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e19, 1e20, 1e30, 1e38])
@pytest.mark.parametrize("function", [safe_norm, squash, exponential_squash])
def test_lengths_of_all_sizes(function, scale):
    s = (scale * DIRECTIONS).astype(np.float32)
    value = function(s)
    exact = _exact(function, s.astype(np.float64))
    np.testing.assert_allclose(value, exact, rtol=1e-6, atol=1e-37)


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


@pytest.mark.parametrize("procedure", [routing.dynamic_routing, routing.uniform_routing])
@pytest.mark.parametrize("scale", [1e19, 1e25, 1e37])
def test_routing_of_long_votes(procedure, scale):
    poses, pullback = jax.vjp(lambda votes: procedure(votes).poses, scale * VOTES)
    np.testing.assert_allclose(safe_norm(poses), 1, rtol=1e-6)
    assert np.isfinite(pullback(jnp.ones_like(poses))[0]).all()


def _gradient_of_fixed_point(votes):
    def total(votes):
        found = routing.fixed_point(
            routing.inverted_attention_routing, votes, normalize=jax.nn.standardize
        )
        return (found.routed.poses**3).sum()

    return jax.grad(total)(votes)


@pytest.mark.slow
def test_the_gradient_of_a_fixed_point_of_float32_votes_under_x64():
    expected = _gradient_of_fixed_point(VOTES)
    with jax.enable_x64(True):
        found = _gradient_of_fixed_point(jnp.asarray(VOTES))
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        wide = _gradient_of_fixed_point(jnp.asarray(VOTES, jnp.float64))
        np.testing.assert_allclose(found, wide, rtol=1e-3, atol=1e-4)


def _em(votes):
    children, parents = jnp.ones(votes.shape[-3]), jnp.zeros(votes.shape[-2])
    return routing.em_routing(votes, children, parents, parents)


PROCEDURES = {
    "uniform": routing.uniform_routing,
    "dynamic": routing.dynamic_routing,
    "em": _em,
    "inverted": lambda votes: routing.inverted_attention_routing(votes, normalize=lambda p: p),
}


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((0, 4, 3), "children"), ((6, 0, 3), "parents"), ((6, 4, 0), "pose size")]
)
def test_axes_of_length_zero_are_named(procedure, shape, axis):
    with pytest.raises(ValueError, match=rf"the axis \w \({axis}\) has length zero"):
        PROCEDURES[procedure](jnp.ones(shape))


@pytest.mark.parametrize(
    ("call", "axis"),
    [
        (
            lambda: routing.attention_routing(jnp.ones((0, 3)), jnp.ones((3, 0, 0))),
            "input channels",
        ),
        (lambda: routing.attention_routing(jnp.ones((4, 0)), jnp.ones((0, 4, 4))), "pose size"),
        (lambda: routing.coupling_entropy(jnp.ones((6, 0))), "parents"),
    ],
)
def test_other_axes_of_length_zero_are_named(call, axis):
    with pytest.raises(ValueError, match=axis):
        call()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda rngs: layers.PrimaryCapsules(0, 2, 2, rngs=rngs), "in_features"),
        (lambda rngs: layers.PrimaryCapsules(4, 0, 2, rngs=rngs), "channels"),
        (lambda rngs: layers.PrimaryCapsules(4, 2, 2, kernel_size=0, rngs=rngs), "kernel_size"),
        (lambda rngs: layers.PrimaryCapsules(4, 2, 2, strides=0, rngs=rngs), "strides"),
        (lambda rngs: layers.ConvCapsules(2, 2, 2, 4, strides=0, rngs=rngs), "strides"),
        (lambda rngs: layers.AttentionConvCapsules(0, 2, 2, 4, rngs=rngs), "in_channels"),
        (lambda rngs: layers.AttentionFullCapsules((0, 3), 2, 2, 2, 4, rngs=rngs), "grid"),
        (lambda rngs: layers.CapsuleActivation(0, 4, rngs=rngs), "channels"),
        (lambda rngs: layers.Decoder(0, 4, (8, 8, 1), rngs=rngs), "num_classes"),
        (lambda rngs: layers.Decoder(3, 4, (8, 0, 1), rngs=rngs), "image_shape"),
        (lambda rngs: layers.Decoder(3, 4, (8, 8, 1), features=(0,), rngs=rngs), "features"),
        (lambda rngs: layers.ConvDecoder(3, 4, (8, 8, 1), features=(), rngs=rngs), "features"),
        (lambda rngs: layers.SimpleBackbone(3, 0, rngs=rngs), "out_features"),
        (lambda rngs: layers.ResNetBackbone(3, (), rngs=rngs), "stages"),
        (lambda rngs: layers.ResNetBackbone(3, ((4, 0, 1),), rngs=rngs), "stages"),
    ],
)
def test_layers_of_size_zero_are_refused(make, name):
    with pytest.raises(ValueError, match=rf"^{name} must"):
        make(nnx.Rngs(0))


ROW = [0.5, 0.5]


@pytest.mark.parametrize(
    "call",
    [
        lambda: squash(ROW),
        lambda: exponential_squash(ROW),
        lambda: safe_norm(ROW),
        lambda: functional.at_least_float32(ROW),
        lambda: functional.mask_poses(jnp.ones((2, 3)), ROW),
        lambda: functional.mask_poses([ROW], jnp.ones(1)),
        lambda: functional.normalize([[ROW]], (0.5, 0.5), (1.0, 1.0)),
        lambda: losses.margin_loss(ROW, ROW),
        lambda: losses.spread_loss(ROW, ROW),
        lambda: losses.cross_entropy(ROW, ROW),
        lambda: losses.sigmoid_cross_entropy(ROW, ROW),
        lambda: losses.length_logits(ROW),
        lambda: losses.reconstruction_loss(ROW, ROW),
        lambda: routing.dynamic_routing([ROW]),
        lambda: routing.dynamic_routing(VOTES, logits=[ROW]),
        lambda: routing.dynamic_routing(VOTES, bias=[ROW]),
        lambda: routing.uniform_routing(VOTES, bias=[ROW]),
        lambda: routing.inverted_attention_routing(VOTES, [ROW], normalize=lambda p: p),
        lambda: routing.em_routing(VOTES, ROW, ROW, ROW),
        lambda: routing.attention_routing([ROW], jnp.ones((2, 1, 1))),
        lambda: routing.coupling_entropy([ROW]),
        lambda: routing.LinearVotes([ROW], [ROW]),
    ],
)
def test_lists_are_no_arrays(call):
    with pytest.raises(TypeError, match=r"must be an array|votes must be"):
        call()


def _one_name_per_family():
    """One name of each family of networks; the others differ in their sizes."""
    families = {}
    for name in models.names():
        families.setdefault(type(models.lookup(name).config), name)
    quick = ("sabour2017_capsnet", "tsai2020_cifar10_simple")
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.slow)
        for name in families.values()
    ]


def _narrow(name, rngs):
    width = {"width": 1 / 32} if "width" in models.options(name) else {}
    return models.create(name, models.lookup(name).input_shape, 10, rngs=rngs, **width)


@pytest.mark.parametrize("name", _one_name_per_family())
def test_empty_batches_go_through_whole_networks(name):
    graphdef, state = nnx.split(nnx.eval_shape(lambda: _narrow(name, nnx.Rngs(0))))

    def call(state, images):
        model = nnx.merge(graphdef, state)
        model.eval()
        return model(images, mask=jnp.zeros((len(images), 10)), capture=True)

    for n in (0, 2):
        images = jax.ShapeDtypeStruct((n, *models.lookup(name).input_shape), jnp.float32)
        assert jax.eval_shape(call, state, images).scores.shape == (n, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sabour2017_capsnet", "tsai2020_cifar10_simple"])
def test_empty_batches_are_computed_and_differentiated(name):
    model = _narrow(name, nnx.Rngs(0))
    images = jnp.zeros((0, *models.lookup(name).input_shape))

    def total(model, images):
        return model(images).scores.sum()

    value, gradient = nnx.jit(nnx.value_and_grad(total))(model, images)
    assert value == 0
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))


def test_wider_options_do_not_widen_the_votes_under_x64():
    votes = RNG.normal(size=(5, 3, 4)).astype(np.float32)
    with jax.enable_x64(True):
        soft = routing.dynamic_routing(votes, update_rate=np.float64(0.5))
        floored = routing.em_routing(
            votes,
            np.ones(5, np.float32),
            np.zeros(3, np.float32),
            np.zeros(3, np.float32),
            variance_floor=np.float64(1e-4),
        )
    assert soft.poses.dtype == floored.poses.dtype == np.float32
