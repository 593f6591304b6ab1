"""Transfer: lower layers kept as they were trained, the others trained again (Lin et al. 2018).

A1B keeps one layer trained on domain A and trains the others on B, A2B keeps two; B1B and B2B do
the same with a network trained on B (section 3.3, figures 6 and 7).
"""

from capsjax._names import lookup

# The paper's three layers. It draws nothing below them; here all below belongs to the first.
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "lin2018_capsnet_deeper": (("conv", "primary", "capsules/0"), ("capsules/1",), ("classes",)),
    "lin2018_cnn_deeper": (("convs", "dense/0"), ("dense/1",), ("classes",)),
}
# The paper's tests: domain and number of the kept layers, domain of all else.
SCHEMES = ("A1B", "A2B", "B1B", "B2B")


def lower_layers(name: str, num_kept: int) -> tuple[str, ...]:
    """Paths of the lowest `num_kept` of the three layers of a network, for config.init_layers."""
    layers = lookup("network", name, LAYERS)
    return tuple(path for layer in layers[:num_kept] for path in layer)
