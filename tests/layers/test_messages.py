"""What layers say of sizes that do not fit."""

from functools import partial

import jax.numpy as jnp
import pytest
from flax import nnx

from capsjax import layers
from capsjax.routing import inverted_attention_routing


@pytest.mark.parametrize(
    ("layer", "sizes", "shapes", "message"),
    [
        ("AttentionConvCapsules", (2, 4, 3, 5), [(5, 8, 1, 4)], "in_channels = 2 and in_pose = 4"),
        ("AttentionFullCapsules", ((5, 8), 2, 4, 3, 5), [(8, 5, 2, 4)], "height = 5 and width = 8"),
        ("CapsuleActivation", (3, 4), [(2, 1, 4)], "channels = 3 and pose_size = 4"),
        ("DenseCapsules", (4, 8, 3, 16), [(2, 4, 16)], "num_children = 4 and in_pose = 8"),
        ("ConvCapsules", (4, 8, 3, 16), [(5, 5, 4, 16)], "in_channels = 4 and in_pose = 8"),
        ("DepthwiseCapsules", (8, 4, 3), [(1, 3, 3, 4)], "channels = 8"),
        ("DepthwiseCapsules", (8, 4, 3), [(2, 1, 1, 8)], "rows = 3"),
        ("PrimaryCapsules", (4, 2, 4), [(2, 9, 9, 3)], "must have 4 channels, got shape"),
        ("Decoder", (3, 4, (5, 6, 1)), [(2, 4, 3)], "num_classes = 3 and pose_size = 4"),
        # As many class numbers as there are classes: they would broadcast.
        ("Decoder", (3, 4, (5, 6, 1)), [(2, 3, 4), (3,)], r"\(3,\); for class numbers .*one_hot"),
        ("EMClassCapsules", (2, 3, 16), [(4, 4, 2, 8), (4, 4, 2)], "channels = 2 and pose_size"),
        ("SlotAttention", (5, 3, 4, 6), [(7, 5)], r"inputs must be \[n, N, D\], N .* \(7, 5\)"),
        ("SlotAttention", (5, 3, 4, 6), [(2, 7, 4)], "inputs must be in_features = 5"),
        ("SlotAttention", (5, 3, 4, 6), [(2, 0, 5)], "N at least 1; got shape"),
        ("SlotAttention", (5, 3, 4, 6), [(2, 7, 5), (2, 3, 5)], r"slots must be \[2, J, 4\], as"),
        ("SlotAttention", (5, 3, 4, 6), [(2, 7, 5), (1, 3, 4)], r"slots must be \[2, J, 4\], as"),
    ],
)
def test_arrays_that_do_not_fit(layer, sizes, shapes, message):
    layer = getattr(layers, layer)(*sizes, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=message):
        layer(*(jnp.zeros(shape) for shape in shapes))


def em_stack():
    routing = layers.EMRouting(3)
    conv = layers.ConvCapsules(2, 4, 3, 4, routing=routing, rngs=nnx.Rngs(0))
    layers.InvertedAttentionStack({"conv": conv}, schedule="fixed_point")


dense = partial(layers.DenseCapsules, rngs=nnx.Rngs(0))
normalized = partial(inverted_attention_routing, normalize=nnx.LayerNorm(4, rngs=nnx.Rngs(0)))


def biased_stack():
    routing = layers.InvertedAttention(4, rngs=nnx.Rngs(0))
    layers.InvertedAttentionStack({"top": dense(6, 4, 3, 4, routing=routing, use_bias=True)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.DepthwiseCapsules(10, 4, 3, rngs=nnx.Rngs(0)), "pose_size=4, got 10"),
        (lambda: dense(6, 8, 3, 8, form="matrix"), "nearest are 4 and 9"),
        (lambda: dense(6, 4, 3, 9, form="matrix"), "must be equal and a square, got 4 and 9"),
        (lambda: dense(6, 4, 3, 4, form="tensor"), "vector"),
        (lambda: layers.dropout(jnp.ones((2, 3)), None, keep=0), r"keep must be in \(0, 1\]"),
        (lambda: layers.dropout(jnp.ones(2), jnp.ones(1), keep=0.5), "keys must be 2, from jax"),
        (lambda: layers.coordinate_addition(jnp.zeros((2, 3, 1, 5, 8))), "a square of at least 4"),
        (lambda: layers.InvertedAttentionStack({}, schedule="parallel"), "'sequential', 'fixed"),
        (em_stack, "without activations"),
        (lambda: dense(6, 4, 3, 4, routing=normalized), "a partial that holds a module, LayerNorm"),
        (biased_stack, "use_bias=False"),
        (
            lambda: layers.SlotAttention(5, 3, 4, 6, num_iterations=0, rngs=nnx.Rngs(0)),
            "at least 1",
        ),
    ],
)
def test_sizes_and_options_that_no_layer_has(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("layer", ["ConvCapsules", "AttentionConvCapsules", "PrimaryCapsules"])
@pytest.mark.parametrize("option", ["kernel_size", "strides"])
def test_windows_are_square(layer, option):
    sizes = (4, 2, 4) if layer == "PrimaryCapsules" else (4, 8, 3, 16)
    with pytest.raises(TypeError, match=f"{option} must be a Python int, got tuple"):
        getattr(layers, layer)(*sizes, **{option: (3, 3)}, rngs=nnx.Rngs(0))
