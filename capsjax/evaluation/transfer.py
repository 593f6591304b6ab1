"""Transfer: lower layers kept as they were trained, the others trained again (Lin et al. 2018).

A1B keeps one layer trained on domain A and trains the others on B, A2B keeps two; B1B and B2B do
the same with a network trained on B (section 3.3, figures 6 and 7).
"""

from typing import NamedTuple

from capsjax._names import lookup

# The paper's three layers. It draws nothing below them; here all below belongs to the first.
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "lin2018_capsnet_deeper": (("conv", "primary", "capsules/0"), ("capsules/1",), ("classes",)),
    "lin2018_cnn_deeper": (("convs", "dense/0"), ("dense/1",), ("classes",)),
}


class Scheme(NamedTuple):
    """One of the paper's tests."""

    source: str  # domain that the kept layers were trained on, "A" or "B"
    num_kept: int  # of the three layers, from below
    target: str  # domain that the others are trained and the network is tested on


SCHEMES = {
    "A1B": Scheme("A", 1, "B"),
    "A2B": Scheme("A", 2, "B"),
    "B1B": Scheme("B", 1, "B"),
    "B2B": Scheme("B", 2, "B"),
}


def lower_layers(name: str, num_kept: int) -> tuple[str, ...]:
    """Paths of the lowest `num_kept` of the three layers of a network, for config.init_layers."""
    layers = lookup("network", name, LAYERS)
    return tuple(path for layer in layers[:num_kept] for path in layer)
