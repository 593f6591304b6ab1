import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from capsjax.evaluation.transfer import LAYERS, lower_layers
from capsjax.models import paths


def frozen_in(network, layers):
    """The paths of the parameters in `layers`."""
    params = nnx.state(network, nnx.Param)
    frozen = paths.by_path(nnx.State(paths.within(params, layers)))
    return {path for path, is_frozen in frozen.items() if is_frozen}


FIRST = {
    "conv/kernel",
    "conv/bias",
    "primary/conv/kernel",
    "primary/conv/bias",
    "capsules/0/kernel",
}


@pytest.mark.parametrize(("num_kept", "kept"), [(1, FIRST), (2, FIRST | {"capsules/1/kernel"})])
def test_layers_that_the_paper_keeps(capsnet, num_kept, kept):
    layers = lower_layers("lin2018_capsnet_deeper", num_kept)
    assert frozen_in(capsnet, layers) == kept


@pytest.mark.parametrize("name", LAYERS)
def test_the_three_layers_are_the_whole_network(name, capsnet, cnn):
    network = capsnet if "capsnet" in name else cnn
    assert not frozen_in(network, lower_layers(name, 0))
    layers = lower_layers(name, 3)
    assert frozen_in(network, layers) == set(paths.by_path(nnx.state(network, nnx.Param)))
    assert len(layers) == len(set(layers))


def test_a_layer_is_not_mistaken_for_another():
    network = nnx.Dict(
        conv=nnx.Linear(2, 2, rngs=nnx.Rngs(0)), conv2=nnx.Linear(2, 2, rngs=nnx.Rngs(1))
    )
    assert frozen_in(network, ["conv"]) == {"conv/kernel", "conv/bias"}


def test_what_is_frozen_stays_to_the_bit(cnn):
    params = nnx.state(cnn, nnx.Param)
    frozen = paths.within(params, lower_layers("lin2018_cnn_deeper", 2))
    # Weight decay moves a parameter without any gradient.
    optimizer = paths.freeze(optax.adamw(0.1, weight_decay=0.5), frozen)

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


def test_bad_input(capsnet):
    with pytest.raises(ValueError, match="no parameters in 'capsule': did you mean 'capsules'"):
        frozen_in(capsnet, ["capsule"])
    with pytest.raises(ValueError, match="did you mean 'lin2018_capsnet_deeper'"):
        lower_layers("lin2018_capsnet", 1)
