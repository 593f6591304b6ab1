"""Lower layers kept from another domain of digit pairs, the others trained anew on B.

Lin et al. 2018, figure 7. The tests A1B and A2B keep layers that were trained on A, B1B and B2B
layers that were trained on B:

  python experiments/train.py --config=configs/lin2018_transfer.py:A --workdir=runs/a
  python experiments/train.py --config=configs/lin2018_transfer.py:A2B --workdir=runs/a2b \\
      --config.init_from=runs/a

For the other domain use :B and :B2B; for the CNN --config=configs/lin2018_transfer.py:A2B,cnn.
The paper counts three layers, from the bottom up: those with a routing, or the dense ones in their
place. What is below them is kept with the first. The paper gives no length of training; here each
takes 20 epochs.
"""

from capsjax.training import config as configs

# Domain and number of the layers kept, then the domain that the rest is trained on.
TESTS = ("A1B", "A2B", "B1B", "B2B")
FIRST_TWO = {
    "capsnet": [("conv", "primary", "capsules/0"), ("capsules/1",)],
    "cnn": [("convs", "dense/0"), ("dense/1",)],
}


def get_config(which="A"):
    test, _, kind = which.partition(",")
    kind = kind or "capsnet"
    if test not in ("A", "B", *TESTS) or kind not in FIRST_TWO:
        raise ValueError(
            f"after the colon comes A, B or one of {', '.join(TESTS)}, and ,cnn for the CNN; got "
            f"{which!r}"
        )
    data = f"multimnist_{test[-1].lower()}"
    config = configs.default(model=f"lin2018_{kind}_deeper", data=data)
    config.training.epochs = 20
    if kind == "cnn":
        config.loss.name = "sigmoid_cross_entropy"
    if test in TESTS:
        kept = FIRST_TWO[kind][: int(test[1])]
        config.init_layers = config.frozen_layers = tuple(name for layer in kept for name in layer)
    return config
