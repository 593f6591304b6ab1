import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from capsjax import models
from capsjax.analysis.transfer import (
    LAYERS,
    SCHEMES,
    freeze,
    keep_layers,
    lower_layers,
)


@pytest.fixture(scope="module")
def states(capsnet):
    """Parameters that are all 1, as trained, and all 0, as fresh."""
    params = nnx.state(capsnet, nnx.Param)
    return jax.tree.map(jnp.ones_like, params), jax.tree.map(jnp.zeros_like, params)


def kept_of(tree):
    """The paths that are all true (1)."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        for path, x in leaves
        if np.all(x)
    }


FIRST = {
    "conv/kernel",
    "conv/bias",
    "primary/conv/kernel",
    "primary/conv/bias",
    "capsules/0/kernel",
}


@pytest.mark.parametrize(
    ("scheme", "kept"),
    [
        ("A1B", FIRST),
        ("A2B", FIRST | {"capsules/1/kernel"}),
        ("B1B", FIRST),
        ("B2B", FIRST | {"capsules/1/kernel"}),
    ],
)
def test_schemes_of_the_paper(states, scheme, kept):
    layers = lower_layers("lin2018_capsnet_deeper", SCHEMES[scheme].num_kept)
    params, frozen = keep_layers(*states, layers)
    assert kept_of(params) == kept_of(frozen) == kept
    assert jax.tree.structure(params) == jax.tree.structure(frozen) == jax.tree.structure(states[0])


def test_keeping_nothing_and_everything(states):
    for num_kept, expected in ((0, 0.0), (3, 1.0)):
        params, _ = keep_layers(*states, lower_layers("lin2018_capsnet_deeper", num_kept))
        assert all(np.all(leaf == expected) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("name", LAYERS)
def test_the_three_layers_are_the_whole_network(name, capsnet, cnn):
    network = capsnet if "capsnet" in name else cnn
    params = nnx.state(network, nnx.Param)
    layers = lower_layers(name, 3)
    assert all(jax.tree.leaves(keep_layers(params, params, layers).frozen))
    assert len(layers) == len(set(layers))


def test_names_of_the_networks():
    assert set(LAYERS) <= set(models.names())
    assert {s.target for s in SCHEMES.values()} == {"B"}


def test_a_layer_is_not_mistaken_for_another():
    trained = nnx.state(
        nnx.Dict(conv=nnx.Linear(2, 2, rngs=nnx.Rngs(0)), conv2=nnx.Linear(2, 2, rngs=nnx.Rngs(1))),
        nnx.Param,
    )
    frozen = keep_layers(trained, trained, ["conv"]).frozen
    assert kept_of(frozen) == {"conv/kernel", "conv/bias"}


def test_what_is_frozen_stays_to_the_bit(cnn):
    trained = nnx.state(cnn, nnx.Param)
    params, frozen = keep_layers(trained, trained, lower_layers("lin2018_cnn_deeper", 2))
    # Weight decay moves a parameter without any gradient.
    optimizer = freeze(optax.adamw(0.1, weight_decay=0.5), frozen)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.tree.map(jnp.ones_like, params), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    after = params
    for _ in range(3):
        after, state = step(after, state)
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), params, after)
    assert jax.tree.leaves(same) == jax.tree.leaves(frozen)
    assert not all(jax.tree.leaves(same))
    # No moments are held for what is frozen.
    moving = sum(
        p.size
        for p, f in zip(jax.tree.leaves(params), jax.tree.leaves(frozen), strict=True)
        if not f
    )
    assert sum(x.size for x in jax.tree.leaves(state)) < 2 * moving + 10


def test_bad_input(states, cnn):
    with pytest.raises(ValueError, match="no parameters in 'capsule': did you mean 'capsules'"):
        keep_layers(*states, ["capsule"])
    with pytest.raises(ValueError, match="differ in capsules/0/kernel, capsules/1/kernel"):
        keep_layers(states[0], nnx.state(cnn, nnx.Param), ["conv"])
    with pytest.raises(ValueError, match="did you mean 'lin2018_capsnet_deeper'"):
        lower_layers("lin2018_capsnet", 1)
    with pytest.raises(ValueError, match=r"num_kept must be in \[0, 3\], got 4"):
        lower_layers("lin2018_cnn_deeper", 4)
