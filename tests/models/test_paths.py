"""Which parameters a path names."""

import _configs
import pytest
from flax import nnx

from capsjax.models import paths
from tests.models.building import build


def frozen_in(network, layers):
    """The paths of the parameters in `layers`."""
    params = nnx.state(network, nnx.Param)
    frozen = paths.by_path(nnx.State(paths.within(params, layers)))
    return {path for path, is_frozen in frozen.items() if is_frozen}


def lin2018(kind):
    small = {"kernel_size": 3, "width": 1 / 16}
    return build(f"lin2018_{kind}_deeper", (12, 12, 1), 3, **small)


BELOW = {"conv/kernel", "conv/bias", "primary/conv/kernel", "primary/conv/bias"}
CNN = {f"{layer}/{x}" for layer in ("convs/0", "convs/1", "dense/0") for x in ("kernel", "bias")}


@pytest.mark.parametrize(
    ("kind", "test", "kept"),
    [
        ("capsnet", "A1B", BELOW | {"capsules/0/kernel"}),
        ("capsnet", "B2B", BELOW | {"capsules/0/kernel", "capsules/1/kernel"}),
        ("cnn", "A1B", CNN),
        ("cnn", "B2B", CNN | {"dense/1/kernel", "dense/1/bias"}),
    ],
)
def test_layers_that_lin2018_keeps(kind, test, kept):
    config = _configs.read(f"lin2018_transfer:{test},{kind}")
    assert config.init_layers == config.frozen_layers
    assert frozen_in(lin2018(kind), config.init_layers) == kept


def test_a_layer_is_not_mistaken_for_another():
    network = nnx.Dict(
        conv=nnx.Linear(2, 2, rngs=nnx.Rngs(0)), conv2=nnx.Linear(2, 2, rngs=nnx.Rngs(1))
    )
    assert frozen_in(network, ["conv"]) == {"conv/kernel", "conv/bias"}
    with pytest.raises(ValueError, match="no parameters in 'con': did you mean 'conv'"):
        frozen_in(network, ["con"])
